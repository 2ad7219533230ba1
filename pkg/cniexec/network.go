package cniexec

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// A Network is a list of plugins, and what they are run with for one attachment: the
// delegates of a devinfo, or the plugins of a claim's network. libcni runs them. What it
// does not do is here: to say which plugin failed, to run every DEL though one fails, and
// to ask between two plugins whether to go on. Errors are a [*PluginError], unless no
// plugin is to blame. No context ends a plugin: its limit does.
type Network struct {
	List    *libcni.NetworkConfigList
	Runtime *libcni.RuntimeConf
	Dirs    []string    // where plugins are looked for, CNI_PATH
	Exec    invoke.Exec // *Exec, or what stands in for it

	// Cache is a directory for what libcni keeps of an attachment, and believes: results
	// and configurations. The caller's record is the authority, so the directory is
	// emptied before each verb, and gone after ADD.
	Cache string

	Before  func() error                       // asked before each plugin of ADD; its error ends that; nil = nobody is asked
	After   func(plugin string, result []byte) // told of each plugin of ADD that has ended well; nil = nobody is told
	Started int                                // by Add: the plugins that need a DEL, the failed one included if it was run
}

// A PluginError says which plugin failed.
type PluginError struct {
	At     int    // its place in the list
	Plugin string // its type
	Err    error  // an *Error, but where libcni cannot make the plugin's configuration or read its result
}

func (e *PluginError) Error() string { return e.Plugin + ": " + e.Err.Error() }
func (e *PluginError) Unwrap() error { return e.Err }

// Add runs ADD of the plugins in order, the first with a result that is there already
// (nil = none), and returns the last one's result: in the network's version, where that
// can say it. It cannot where there are no addresses, before 0.3.0.
func (n *Network) Add(prev json.RawMessage) (json.RawMessage, error) {
	list, err := n.with(prev, 1)
	if err != nil {
		return nil, err
	}
	cni, run := n.open(0)
	defer os.RemoveAll(n.Cache)
	n.Started = 0
	run.before, run.after = func() error {
		if n.Before != nil {
			if err := n.Before(); err != nil {
				return err
			}
		}
		n.Started++
		return nil
	}, n.After
	res, err := cni.AddNetworkList(context.Background(), list, n.Runtime)
	if err != nil {
		if failed := (*Error)(nil); run.ran && errors.As(err, &failed) && failed.NotRun() { // it has done nothing
			n.Started--
		}
		return nil, run.blame(err)
	}
	if same, err := res.GetAsVersion(list.CNIVersion); err == nil {
		res = same
	}
	return json.Marshal(res)
}

// Del runs DEL of the plugins, the last one first, with the result of ADD where the network's
// version has that (0.4.0); nil = there is none. A plugin that fails does not keep the others
// from being run, unless stop says so; nil = it never does.
func (n *Network) Del(result json.RawMessage, stop func(error) bool) (errs []error) {
	if has, err := version.GreaterThanOrEqualTo(n.List.CNIVersion, "0.4.0"); err != nil || !has {
		result = nil
	}
	list, err := n.with(result, len(n.List.Plugins))
	if err != nil {
		return []error{err}
	}
	for i := len(list.Plugins) - 1; i >= 0; i-- {
		one := *list
		one.Plugins = list.Plugins[i : i+1]
		cni, run := n.open(i)
		if err := cni.DelNetworkList(context.Background(), &one, n.Runtime); err != nil {
			errs = append(errs, run.blame(err))
			if stop != nil && stop(err) {
				break
			}
		}
	}
	return errs
}

// Check runs CHECK of the plugins in order, with the runtime's prevResult, up to the first
// that fails (SPEC.md section 4, "Lifecycle & Ordering").
func (n *Network) Check(prev json.RawMessage) error {
	list, err := n.with(prev, len(n.List.Plugins))
	if err != nil {
		return err
	}
	cni, run := n.open(0)
	return run.blame(cni.CheckNetworkList(context.Background(), list, n.Runtime))
}

// GC hands the list of valid attachments to all plugins, whatever fails.
func (n *Network) GC(valid []types.GCAttachment) (errs []error) {
	for i := range n.List.Plugins {
		one := *n.List
		one.Plugins = n.List.Plugins[i : i+1]
		cni, run := n.open(i)
		if err := cni.GCNetworkList(context.Background(), &one, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
			errs = append(errs, run.blame(err))
		}
	}
	return errs
}

// Status gives the error of the first plugin that is not ready.
func (n *Network) Status() error {
	cni, run := n.open(0)
	return run.blame(cni.GetStatusNetworkList(context.Background(), n.List))
}

// with is the list where the first plugins have a prevResult, unless that is nil.
func (n *Network) with(prev json.RawMessage, first int) (*libcni.NetworkConfigList, error) {
	if prev == nil {
		return n.List, nil
	}
	list := *n.List
	list.Plugins = slices.Clone(n.List.Plugins)
	for i, plugin := range list.Plugins[:first] {
		injected, err := libcni.InjectConf(plugin, map[string]any{"prevResult": prev})
		if err != nil {
			return nil, &PluginError{i, plugin.Network.Type, err}
		}
		list.Plugins[i] = injected
	}
	return &list, nil
}

// open prepares a run of the plugins from the first that is given, by its place.
func (n *Network) open(first int) (*libcni.CNIConfig, *watched) {
	_ = os.RemoveAll(n.Cache) // what cannot be removed on a read-only disk was not written there by us
	run := &watched{Exec: n.Exec, at: first - 1}
	return libcni.NewCNIConfigWithCacheDir(n.Dirs, n.Cache, run), run
}

// watched is the Exec that libcni runs plugins by.
type watched struct {
	invoke.Exec
	before func() error
	after  func(plugin string, result []byte)
	plugin string // the one that was looked for last
	at     int    // its place in the list
	ran    bool   // and was run
}

// FindInPath implements invoke.Exec.
func (w *watched) FindInPath(plugin string, dirs []string) (string, error) {
	w.plugin, w.ran = plugin, false
	w.at++
	return w.Exec.FindInPath(plugin, dirs)
}

// ExecPlugin implements invoke.Exec.
func (w *watched) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	if w.before != nil {
		if err := w.before(); err != nil {
			return nil, &stopped{err}
		}
	}
	w.ran = true
	out, err := w.Exec.ExecPlugin(ctx, path, stdin, env)
	if err == nil && w.after != nil {
		w.after(w.plugin, out)
	}
	return out, err
}

// stopped is the error of a plugin that was not run, for no fault of its own.
type stopped struct{ error }

// blame says whose an error of libcni's is. What libcni adds to it says no more.
func (w *watched) blame(err error) error {
	if err == nil {
		return nil
	}
	if not := (*stopped)(nil); errors.As(err, &not) {
		return not.error
	}
	if file := (*fs.PathError)(nil); errors.As(err, &file) && !errors.As(err, new(*Error)) {
		return err // of libcni's cache
	}
	if run := (*Error)(nil); errors.As(err, &run) {
		err = run
	} else if cause := errors.Unwrap(err); cause != nil {
		err = cause
	}
	return &PluginError{w.at, w.plugin, err}
}
