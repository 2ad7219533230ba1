// Package network attaches a pod to one network and detaches it: it runs the CNI plugins of an attachment, and reads and
// writes what belongs to it alone, libcni's cache and the device-info file. It knows no other attachment and no claim.
package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/host/store"
)

// Runner runs CNI plugins through libcni. Each attachment has its own directory below CacheDir. The claim's record holds
// the configuration and the result of ADD, so Runner removes libcni's cached copies.
type Runner struct {
	CacheDir   string   // as this process sees it
	CNIBinDirs []string // directories of CNI plugins, below HostRoot
	HostRoot   string   // root directory of CNI plugins; "" = the root of this process

	Namespaces Namespaces

	Node    *devices.Node
	Exec    invoke.Exec       // runs CNI plugins; nil = run them with package cniexec
	Reached func(name string) // called after each write and each plugin
	Log     *slog.Logger
}

// PluginLimit is the time after which a CNI plugin is killed. The kubelet stops waiting for a sandbox earlier.
const PluginLimit = 4 * time.Minute

// Add runs ADD and stores its results in the attachment: the result, the device information and the metadata. uid is that
// of the claim.
func (r *Runner) Add(uid string, at *state.Attachment) error {
	if err := r.Namespaces.Hold(at.Sandbox, at.Netns); err != nil {
		return NodeError(err)
	}
	if err := r.Node.Bind(at); err != nil {
		return NodeError(err)
	}
	initial, err := r.writeInitialInfo(at)
	if err != nil {
		return NodeError(err)
	}
	err = r.run("ADD", uid, at, at.Netns, "", func(n *cniexec.Network) (err error) {
		at.Result, err = n.Add(nil)
		return err
	})
	r.Reached("exec ADD")
	if err != nil {
		return err
	}
	info, err := r.finalInfo(at, initial)
	if err != nil {
		return &cniexec.Error{Reason: ReasonInfo, Err: fmt.Errorf("device-info file of network %s: %w", at.Network, err)}
	}
	at.Metadata, err = r.metadata(at, info)
	return err
}

// Check returns an error if a plugin of the network is missing. No plugin of the network may run then.
func (r *Runner) Check(at *state.Attachment) error {
	list, err := libcni.NetworkConfFromBytes(at.List)
	if err != nil {
		return WrapReason(err, "network %s: configuration", at.Network)
	}
	find := r.exec(nil, "")
	for _, plugin := range list.Plugins {
		if _, err := find.FindInPath(plugin.Network.Type, r.CNIBinDirs); err != nil {
			return WrapReason(err, "network %s: no plugin was run, because one is missing", at.Network)
		}
	}
	return nil
}

// Del runs DEL with the configuration and the result of ADD, then removes the device-info file and the cache. If the network
// namespace no longer exists, netns is "" and gone is its path. A missing plugin does not stop the DEL of the network's
// other plugins.
func (r *Runner) Del(uid string, at *state.Attachment, netns, gone string) error {
	err := r.run("DEL", uid, at, netns, gone, func(n *cniexec.Network) error {
		errs := n.Del(at.Result, func(err error) bool { return ReasonOf(err) != cniexec.ReasonMissing })
		slices.Reverse(errs) // a missing plugin is the least important error
		return errors.Join(errs...)
	})
	r.Reached("exec DEL")
	if err != nil {
		return err
	}
	return r.Forget(uid, at)
}

// Forget removes the device-info file and the cache of an attachment.
func (r *Runner) Forget(uid string, at *state.Attachment) error {
	dir, name := infoFile(at)
	if err := errors.Join(dir.Remove(name), os.RemoveAll(r.dir(uid, at))); err != nil {
		return NodeError(err)
	}
	return nil
}

// run recreates the attachment's directory and calls f. The plugins inherit the lock on a file in the directory.
func (r *Runner) run(verb, uid string, at *state.Attachment, netns, gone string, f func(*cniexec.Network) error) error {
	list, err := libcni.NetworkConfFromBytes(at.List)
	if err != nil {
		return WrapReason(err, "network %s: configuration", at.Network)
	}
	dir := r.dir(uid, at)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	lock, err := store.Private(dir).WriteLocked(lockFile, nil)
	if err != nil {
		return err
	}
	defer store.Unlock(lock)
	capabilities := map[string]any{"CNIDeviceInfoFile": at.InfoFile}
	for name, value := range at.Capabilities {
		capabilities[name] = value
	}
	return WrapReason(f(&cniexec.Network{
		List: list, Dirs: r.CNIBinDirs, Exec: r.exec(lock, gone), Cache: filepath.Join(dir, "libcni"),
		Runtime: &libcni.RuntimeConf{ContainerID: at.Sandbox, NetNS: netns, IfName: at.IfName, Args: at.Args, CapabilityArgs: capabilities},
	}), "network %s: %s", at.Network, verb)
}

// exec returns an Exec whose plugins inherit lock. gone is the path of a network namespace that no longer exists, or "".
func (r *Runner) exec(lock *os.File, gone string) invoke.Exec {
	p := &plugins{Exec: r.Exec, gone: gone, log: r.Log}
	if p.Exec == nil {
		p.Exec = &cniexec.Exec{Root: r.HostRoot, Limit: PluginLimit, Inherit: lock, Stderr: &p.said}
	}
	return p
}

// WaitForOrphans waits for plugins that a killed driver process left running, because they may still create state that
// DEL must remove. A plugin may have started a daemon that never exits, so the wait is limited to PluginLimit. After an error
// they may still run.
func (r *Runner) WaitForOrphans(uid string, at *state.Attachment) error {
	lock, err := store.Lock(context.Background(), filepath.Join(r.dir(uid, at), lockFile), PluginLimit)
	store.Unlock(lock)
	if errors.As(err, new(*store.BusyError)) {
		r.Log.Warn("a plugin of an earlier driver process is still running; assuming that it is a daemon", "attachment", filepath.Base(r.dir(uid, at)), "error", err)
		return nil
	}
	return err
}

const lockFile = "running" // locked while plugins of the attachment run

func (r *Runner) dir(uid string, at *state.Attachment) string {
	return filepath.Join(r.CacheDir, uid+"@"+at.IfName+"@"+at.Sandbox)
}

// plugins runs the plugins of one attachment, one after another, and logs their standard error. It passes the path of a
// network namespace that no longer exists to plugins for VFs. Without CNI_NETNS these plugins return before they reset the
// VF. All other plugins get no path, because they fail if it does not exist.
type plugins struct {
	invoke.Exec
	gone string // "" = the namespace exists
	said cappedBuffer
	log  *slog.Logger
}

func (p *plugins) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	name := filepath.Base(path)
	if p.gone != "" && (name == "sriov" || name == "ib-sriov") {
		env = append(slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, "CNI_NETNS=") }), "CNI_NETNS="+p.gone)
	}
	p.said.Reset()
	stdout, err := p.Exec.ExecPlugin(ctx, path, stdin, env)
	if p.said.Len() > 0 {
		p.log.Info("CNI plugin wrote to stderr", "plugin", name, "stderr", p.said.String())
	}
	return stdout, err
}

// cappedBuffer keeps the first MiB that is written to it.
type cappedBuffer struct{ bytes.Buffer }

func (c *cappedBuffer) Write(p []byte) (int, error) {
	c.Buffer.Write(p[:min(len(p), 1<<20-c.Len())])
	return len(p), nil
}

// ReasonInfo is an invalid device-info file. Package cniexec defines the other reasons.
const ReasonInfo cniexec.Reason = "info"

// NodeError wraps an error that prevented the network from running.
func NodeError(err error) error { return &cniexec.Error{Reason: cniexec.ReasonNode, Err: err} }

// WrapReason adds a prefix to err and keeps its reason, and the beginning of its text: a plugin may print megabytes, and NRI
// ends the connection of a driver that answers with more than 4 MiB. It returns nil for nil.
func WrapReason(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &cniexec.Error{Reason: ReasonOf(err), Err: errors.New(metadata.Message(fmt.Sprintf(format, args...) + ": " + err.Error()))}
}

// ReasonOf returns the reason of an error, or "" for nil. An error without a reason is from libcni, and is
// about a plugin's output or about a file.
func ReasonOf(err error) cniexec.Reason {
	run, is := errors.AsType[*cniexec.Error](err)
	switch {
	case err == nil:
		return ""
	case is:
		return run.Reason
	case errors.As(err, new(*fs.PathError)):
		return cniexec.ReasonNode
	}
	return cniexec.ReasonOutput
}
