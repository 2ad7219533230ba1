package claim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/store"
)

// plugins runs CNI plugins through libcni. Each attachment has its own directory below CacheDir. The claim's
// record holds the configuration and the result of ADD, so run removes libcni's cached copies.
type plugins struct{ Options }

// add runs ADD and returns the result. It never kills plugins, because the state that they would leave is unknown.
func (p *plugins) add(key string, at *state.Attachment) (result json.RawMessage, err error) {
	err = p.run("ADD", key, at, at.Netns, func(n *cniexec.Network) (err error) {
		result, err = n.Add(nil)
		return err
	})
	return result, err
}

// check returns an error if a plugin of the network is missing. No plugin of the network may run then.
func (p *plugins) check(at *state.Attachment) error {
	list, err := libcni.NetworkConfFromBytes(at.List)
	if err != nil {
		return wrapReason(err, "network %s: configuration", at.Network)
	}
	find := p.runner(nil)
	for _, plugin := range list.Plugins {
		if _, err := find.FindInPath(plugin.Network.Type, p.CNIBinDirs); err != nil {
			return wrapReason(err, "network %s: no plugin was run, because one is missing", at.Network)
		}
	}
	return nil
}

// del runs DEL with the configuration and the result of ADD. If the network namespace no longer exists, netns
// is "" and gone is its path. A missing plugin does not stop the DEL of the network's other plugins.
func (p *plugins) del(key string, at *state.Attachment, netns, gone string) error {
	return p.run("DEL", key, at, netns, func(n *cniexec.Network) error {
		n.Exec = withGoneNetns{n.Exec, gone}
		errs := n.Del(at.Result, func(err error) bool { return reasonOf(err) != cniexec.ReasonMissing })
		slices.Reverse(errs) // a missing plugin is the least important error
		return errors.Join(errs...)
	})
}

// run recreates the attachment's directory and calls f. The plugins inherit the lock on a file in the directory.
func (p *plugins) run(verb, key string, at *state.Attachment, netns string, f func(*cniexec.Network) error) error {
	list, err := libcni.NetworkConfFromBytes(at.List)
	if err != nil {
		return wrapReason(err, "network %s: configuration", at.Network)
	}
	if err := p.removeDir(key); err != nil {
		return err
	}
	lock, err := store.Private(p.dir(key)).WriteLocked(lockFile, nil)
	if err != nil {
		return err
	}
	defer store.Unlock(lock)
	capabilities := map[string]any{"CNIDeviceInfoFile": at.InfoFile}
	for name, value := range at.Capabilities {
		capabilities[name] = value
	}
	return wrapReason(f(&cniexec.Network{
		List: list, Dirs: p.CNIBinDirs, Exec: p.runner(lock), Cache: filepath.Join(p.dir(key), "libcni"),
		Runtime: &libcni.RuntimeConf{ContainerID: at.Sandbox, NetNS: netns, IfName: at.IfName, Args: at.Args, CapabilityArgs: capabilities},
	}), "network %s: %s", at.Network, verb)
}

// runner returns an Exec whose plugins inherit lock.
func (p *plugins) runner(lock *os.File) invoke.Exec {
	if p.Exec != nil {
		return p.Exec
	}
	return &loggedExec{cniexec.Exec{Root: p.HostRoot, Limit: PluginLimit, Inherit: lock}, p.Log}
}

// waitForOrphans waits for plugins that a killed driver process left running, because they may still create state that
// DEL must remove. A plugin may have started a daemon that never exits, so the wait is limited to PluginLimit.
func (p *plugins) waitForOrphans(key string) {
	lock, err := store.Lock(context.Background(), filepath.Join(p.dir(key), lockFile), PluginLimit)
	if err != nil {
		p.Log.Warn("a plugin of an earlier driver process is still running; assuming that it is a daemon", "attachment", key, "error", err)
	}
	store.Unlock(lock)
}

const lockFile = "running" // locked while plugins of the attachment run

func (p *plugins) removeDir(key string) error { return os.RemoveAll(p.dir(key)) }

func (p *plugins) dir(key string) string { return filepath.Join(p.CacheDir, key) }

// cniArgs returns the CNI_ARGS of Kubernetes runtimes, in their order, and the name of the claim.
func cniArgs(sb Sandbox, claimName string) [][2]string {
	return [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", sb.Pod.Namespace},
		{"K8S_POD_NAME", sb.Pod.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", sb.ID},
		{"K8S_POD_UID", string(sb.Pod.UID)},
		{pod.ClaimArg, claimName},
	}
}

// loggedExec runs the plugins of one attachment, one after another, and logs their standard error.
type loggedExec struct {
	cniexec.Exec
	log *slog.Logger
}

func (l *loggedExec) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	said := new(cappedBuffer)
	l.Stderr = said
	stdout, err := l.Exec.ExecPlugin(ctx, path, stdin, env)
	if said.Len() > 0 {
		l.log.Info("CNI plugin wrote to stderr", "plugin", filepath.Base(path), "stderr", said.String())
	}
	return stdout, err
}

// withGoneNetns passes the path of a network namespace that no longer exists to plugins for VFs. Without CNI_NETNS
// these plugins return before they reset the VF. All other plugins get no path, because they fail if it does not exist.
type withGoneNetns struct {
	invoke.Exec
	path string // "" = the namespace exists
}

func (w withGoneNetns) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	if name := filepath.Base(path); w.path != "" && (name == "sriov" || name == "ib-sriov") {
		env = append(slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, "CNI_NETNS=") }), "CNI_NETNS="+w.path)
	}
	return w.Exec.ExecPlugin(ctx, path, stdin, env)
}

// cappedBuffer keeps the first MiB that is written to it.
type cappedBuffer struct{ bytes.Buffer }

func (c *cappedBuffer) Write(p []byte) (int, error) {
	c.Buffer.Write(p[:min(len(p), 1<<20-c.Len())])
	return len(p), nil
}

// ReasonInfo is an invalid device-info file. Package cniexec defines the other reasons.
const ReasonInfo cniexec.Reason = "info"

// nodeError wraps an error that prevented the network from running.
func nodeError(err error) error { return &cniexec.Error{Reason: cniexec.ReasonNode, Err: err} }

// wrapReason adds a prefix to err and keeps its reason. It returns nil for nil.
func wrapReason(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &cniexec.Error{Reason: reasonOf(err), Err: fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)}
}

// reasonOf returns the reason of an error, or "" for nil. An error without a reason is from libcni, and is
// about a plugin's output or about a file.
func reasonOf(err error) cniexec.Reason {
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
