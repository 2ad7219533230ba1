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

// A Network is a list of plugins with the parameters of one attachment: devinfo's delegates, or the plugins of
// a claim's network. It passes each plugin to libcni as a list of its own. So errors name the plugin, a failed
// DEL does not stop the others, and the caller can stop between two plugins.
//
// Errors are a [*PluginError], except errors that no plugin caused. A context does not end a plugin; the limit
// of Exec does.
type Network struct {
	List    *libcni.NetworkConfigList
	Runtime *libcni.RuntimeConf
	Dirs    []string    // directories of the plugins, CNI_PATH
	Exec    invoke.Exec // an *Exec, or one that adds to it

	// Cache is a directory for libcni's cache. It is removed before each verb that reads it and after each ADD, because
	// libcni trusts the cache, although the caller's own record is authoritative.
	Cache string

	// Before is called before each plugin's ADD. An error stops Add. nil = none.
	Before func() error
	// Started is set by Add: the number of plugins that need a DEL, including a failed one that was started.
	Started int
	// Result is set by Add: the last result, or prev before the first one.
	Result json.RawMessage
}

type PluginError struct {
	At     int    // index in the list
	Plugin string // the plugin's type
	Err    error  // an *Error, unless libcni could not build the plugin's configuration or read its result
}

func (e *PluginError) Error() string { return e.Plugin + ": " + e.Err.Error() }
func (e *PluginError) Unwrap() error { return e.Err }

// Add runs ADD of the plugins in order and returns the last result, in the network's version if it can be converted.
// prev is the first plugin's prevResult; nil = none.
func (n *Network) Add(prev json.RawMessage) (json.RawMessage, error) {
	n.Started, n.Result = 0, prev
	for i := range n.List.Plugins {
		if n.Before != nil {
			if err := n.Before(); err != nil {
				return nil, err
			}
		}
		var res types.Result
		err := n.run(i, n.Result, func(c call) (err error) {
			res, err = c.AddNetworkList(context.Background(), c.one, n.Runtime)
			return err
		})
		n.emptyCache()
		if failed := (*Error)(nil); !errors.As(err, &failed) || failed.Reason != ReasonMissing && failed.Reason != ReasonNode {
			n.Started = i + 1
		}
		if err != nil {
			return nil, err
		}
		if same, err := res.GetAsVersion(n.List.CNIVersion); err == nil {
			res = same
		}
		text, err := json.Marshal(res)
		if err != nil {
			return nil, err
		}
		n.Result = text
	}
	return n.Result, nil
}

// Del runs DEL of the plugins in reverse order. result is the result of ADD, which plugins get since version 0.4.0; nil
// = none. Del continues after an error, unless stop is set and returns true for it.
func (n *Network) Del(result json.RawMessage, stop func(error) bool) (errs []error) {
	if has, err := version.GreaterThanOrEqualTo(n.List.CNIVersion, "0.4.0"); err != nil || !has {
		result = nil
	}
	return n.each(slices.Backward(n.List.Plugins), result, stop, func(c call) error {
		return c.DelNetworkList(context.Background(), c.one, n.Runtime)
	})
}

// Check runs CHECK of the plugins in order and stops at the first error. prev is the runtime's prevResult.
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

type call struct {
	*libcni.CNIConfig
	one *libcni.NetworkConfigList
}

func atOnce(error) bool { return true }

// each calls do for each plugin, and stops after an error for which stop returns true. A nil stop means never.
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

func (n *Network) run(i int, prev json.RawMessage, do func(call) error) error {
	plugin := n.List.Plugins[i]
	name := plugin.Network.Type
	if prev != nil {
		var err error
		if plugin, err = withPrevResult(plugin, prev); err != nil {
			return &PluginError{i, name, err}
		}
	}
	one := *n.List
	one.Plugins = []*libcni.PluginConfig{plugin}
	err := do(call{libcni.NewCNIConfigWithCacheDir(n.Dirs, n.Cache, n.Exec), &one})
	if err == nil {
		return nil
	}
	if ran := (*Error)(nil); errors.As(err, &ran) { // libcni only adds text to it
		return &PluginError{i, name, ran}
	}
	if file := (*fs.PathError)(nil); errors.As(err, &file) { // in libcni's cache
		return err
	}
	if cause := errors.Unwrap(err); cause != nil {
		err = cause
	}
	return &PluginError{i, name, err}
}

// withPrevResult is libcni.InjectConf without decoding each value, which takes three times as long: 0.2 s of processor
// time for a delegate of a megabyte.
func withPrevResult(plugin *libcni.PluginConfig, prev json.RawMessage) (*libcni.PluginConfig, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(plugin.Bytes, &keys); err != nil {
		return nil, err
	}
	keys["prevResult"] = prev
	data, err := json.Marshal(keys)
	return &libcni.PluginConfig{Network: plugin.Network, Bytes: data}, err
}

// emptyCache ignores errors, because on a read-only disk libcni cannot have written a cache either.
func (n *Network) emptyCache() { _ = os.RemoveAll(n.Cache) }
