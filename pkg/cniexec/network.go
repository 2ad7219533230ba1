package cniexec

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"iter"
	"os"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// A Network is a list of plugins, and what they are run with for one attachment: the
// delegates of a devinfo, or the plugins of a claim's network. libcni runs them, each as a
// list of its own: so it is known which plugin failed, every DEL is run though one fails, and
// between two plugins somebody is asked whether to go on. Errors are a [*PluginError], unless
// no plugin is to blame. No context ends a plugin: its limit does.
type Network struct {
	List    *libcni.NetworkConfigList
	Runtime *libcni.RuntimeConf
	Dirs    []string    // where plugins are looked for, CNI_PATH
	Exec    invoke.Exec // *Exec, or what stands in for it

	// Cache is a directory for what libcni keeps of an attachment, and believes: results
	// and configurations. The caller's record is the authority, so the directory is
	// emptied before each verb, and gone after each ADD.
	Cache string

	Before  func() error                       // asked before each plugin of ADD; its error ends that; nil = nobody is asked
	After   func(plugin string, result []byte) // told of each plugin of ADD that has ended well, as the next one is; nil = nobody is told
	Started int                                // by Add: the plugins that need a DEL, the failed one included if it was run
}

// PluginError is the failure of one plugin.
type PluginError struct {
	At     int    // index in the list
	Plugin string // its type
	Err    error  // an *Error, unless libcni could not build the plugin's configuration or parse its result
}

func (e *PluginError) Error() string { return e.Plugin + ": " + e.Err.Error() }
func (e *PluginError) Unwrap() error { return e.Err }

// Add runs ADD of the plugins in order, the first with a result that is there already
// (nil = none), and returns the last one's result: in the network's version, where that
// can say it. It cannot where there are no addresses, before 0.3.0.
func (n *Network) Add(prev json.RawMessage) (json.RawMessage, error) {
	n.Started = 0
	n.emptyCache()
	for i, plugin := range n.List.Plugins {
		if n.Before != nil {
			if err := n.Before(); err != nil {
				return nil, err
			}
		}
		res, err := n.add(i, prev)
		if err != nil {
			return nil, err
		}
		if same, err := res.GetAsVersion(n.List.CNIVersion); err == nil {
			res = same
		}
		if prev, err = json.Marshal(res); err != nil {
			return nil, err
		}
		if n.After != nil {
			n.After(plugin.Network.Type, prev)
		}
	}
	return prev, nil
}

// add runs ADD of the i-th plugin, and counts it unless it has done nothing.
func (n *Network) add(i int, prev json.RawMessage) (res types.Result, err error) {
	err = n.run(i, prev, func(c call) (err error) {
		res, err = c.AddNetworkList(context.Background(), c.one, n.Runtime)
		return err
	})
	n.emptyCache()
	if failed := (*Error)(nil); !errors.As(err, &failed) || !failed.NotRun() {
		n.Started = i + 1
	}
	return res, err
}

// Del runs DEL of the plugins, the last one first, with the result of ADD where the network's
// version has that (0.4.0); nil = there is none. A plugin that fails does not keep the others
// from being run, unless stop says so; nil = it never does.
func (n *Network) Del(result json.RawMessage, stop func(error) bool) (errs []error) {
	if has, err := version.GreaterThanOrEqualTo(n.List.CNIVersion, "0.4.0"); err != nil || !has {
		result = nil
	}
	return n.each(slices.Backward(n.List.Plugins), result, stop, func(c call) error {
		return c.DelNetworkList(context.Background(), c.one, n.Runtime)
	})
}

// Check runs CHECK of the plugins in order, with the runtime's prevResult, up to the first
// that fails (SPEC.md section 4, "Lifecycle & Ordering").
func (n *Network) Check(prev json.RawMessage) error {
	return errors.Join(n.each(slices.All(n.List.Plugins), prev, atOnce, func(c call) error {
		return c.CheckNetworkList(context.Background(), c.one, n.Runtime)
	})...)
}

// GC runs GC of all plugins with the list of valid attachments, even if some fail.
func (n *Network) GC(valid []types.GCAttachment) []error {
	return n.each(slices.All(n.List.Plugins), nil, nil, func(c call) error {
		return c.GCNetworkList(context.Background(), c.one, &libcni.GCArgs{ValidAttachments: valid})
	})
}

// Status returns the error of the first plugin that is not ready.
func (n *Network) Status() error {
	return errors.Join(n.each(slices.All(n.List.Plugins), nil, atOnce, func(c call) error {
		return c.GetStatusNetworkList(context.Background(), c.one)
	})...)
}

// A call is one of libcni for a list of one plugin.
type call struct {
	*libcni.CNIConfig
	one *libcni.NetworkConfigList
}

func atOnce(error) bool { return true }

// each calls do for each plugin, and stops after an error for which stop returns true. A nil stop
// never ends it.
func (n *Network) each(
	plugins iter.Seq2[int, *libcni.PluginConfig], prev json.RawMessage, stop func(error) bool, do func(call) error,
) (errs []error) {
	n.emptyCache()
	for i := range plugins {
		if err := n.run(i, prev, do); err != nil {
			errs = append(errs, err)
			if stop != nil && stop(err) {
				break
			}
		}
	}
	return errs
}

// run makes a call for the i-th plugin, with that prevResult unless it is nil.
func (n *Network) run(i int, prev json.RawMessage, do func(call) error) error {
	plugin := n.List.Plugins[i]
	name := plugin.Network.Type
	if prev != nil {
		var err error
		if plugin, err = libcni.InjectConf(plugin, map[string]any{"prevResult": prev}); err != nil {
			return &PluginError{i, name, err}
		}
	}
	one := *n.List
	one.Plugins = []*libcni.PluginConfig{plugin}
	err := do(call{libcni.NewCNIConfigWithCacheDir(n.Dirs, n.Cache, n.Exec), &one})
	if err == nil {
		return nil
	}
	if ran := (*Error)(nil); errors.As(err, &ran) { // what libcni adds to it says no more
		return &PluginError{i, name, ran}
	}
	if file := (*fs.PathError)(nil); errors.As(err, &file) { // of libcni's cache
		return err
	}
	if cause := errors.Unwrap(err); cause != nil {
		err = cause
	}
	return &PluginError{i, name, err}
}

// emptyCache ignores errors, because on a read-only disk libcni cannot have written a cache either.
func (n *Network) emptyCache() { _ = os.RemoveAll(n.Cache) }
