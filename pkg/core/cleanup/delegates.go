package cleanup

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containernetworking/cni/libcni"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/pod"
)

const delegateLimit = 4 * time.Minute // time for one delegate; kubelets and runtimes give up sooner

// WithinEnv is an environment variable with the attachment's key for delegates. Without it, a delegate that is devinfo
// itself, under another name or inside another plugin, would take the ADD for a killed one and call itself for ever.
const WithinEnv = "DEVINFO_WITHIN"

func within(k journal.Key) string { return WithinEnv + "=" + k.String() }

// Network returns delegates of an entry as a network, for calls with this network namespace.
func (c *Cleaner) Network(e *journal.Entry, delegates []json.RawMessage, netns string) (*cniexec.Network, error) {
	list := &libcni.NetworkConfigList{Name: e.Network, CNIVersion: cmp.Or(e.CNIVersion, "0.1.0")}
	for n, raw := range delegates {
		plugin, err := libcni.NetworkPluginConfFromBytes(raw)
		if err != nil {
			return nil, failure.New(failure.Config, fmt.Errorf("delegates[%d]: %w", n, err), "correct this plugin configuration")
		}
		list.Plugins = append(list.Plugins, plugin)
	}
	args, _ := pod.ParseArgs(e.Args) // ADD has refused malformed pairs, and DEL has logged a warning
	rt := &libcni.RuntimeConf{ContainerID: e.ContainerID, NetNS: netns, IfName: e.IfName, Args: args, CapabilityArgs: map[string]any{}}
	for key, value := range e.CapabilityArgs {
		rt.CapabilityArgs[key] = value
	}
	// The delegates inherit the entry's lock, so later calls wait for delegates that outlive this process.
	exec := &cniexec.Exec{Root: c.Root, Limit: delegateLimit, Inherit: e.Locked(), Stderr: os.Stderr}
	if e.ContainerID != "" { // GC and STATUS do not concern one attachment
		exec.Env = []string{within(e.Key)}
	}
	return &cniexec.Network{
		List: list, Runtime: rt, Dirs: filepath.SplitList(c.CNIPath), Exec: exec, Cache: c.Journal.Cache(e.Key),
	}, nil
}

// DelDelegates runs the DEL of all delegates, even if some fail. They must not take a device away from another pod
// that has got the device since ADD. If another pod has it, the delegates get no network namespace, or do not run at
// all if the journal has no record of this ADD.
func (r *Removal) DelDelegates() error {
	if len(r.Delegates) == 0 {
		return nil
	}
	netns, held := r.Netns, new(journal.HeldError)
	unrecorded := r.Entry.Locked() == nil
	switch err := r.heldByAnother(); {
	case err != nil && unrecorded:
		r.cleaner.Log.Warn("not running the delegates' DEL", "error", err)
		return nil
	// If Holder.Netns is set, the holder is a lock of sriov-cni, which may be this attachment's own by another path.
	// Otherwise another pod got the device after the namespace had ended or a DEL was killed.
	case errors.As(err, &held) && held.Holder.Netns == "" && netns != "":
		r.cleaner.Log.Warn("running the delegates' DEL without a network namespace", "error", err)
		netns = ""
	}
	n, err := r.cleaner.Network(r.Entry, r.Delegates, netns)
	if err != nil {
		return err
	}
	if r.cleaner.Listen != nil {
		r.cleaner.Listen()
	}
	var errs []error
	for _, err := range n.Del(r.Result, nil) {
		// The ADD of a delegate that cannot be executed failed, and that ADD has undone the other delegates.
		if err = failure.OfDelegate("DEL", err); err != nil && unrecorded && (r.Refused || cannotExecute(err)) {
			r.cleaner.Log.Warn("ignoring a delegate's failed DEL: its ADD has probably not run", "error", err)
			continue
		}
		errs = append(errs, err)
	}
	return failure.Join(errs...)
}

// heldByAnother returns a [*journal.HeldError] if another pod, or a later sandbox of this pod, has a device of
// the entry or, without one in the journal, a device that the configuration names.
func (r *Removal) heldByAnother() error {
	leases := r.Entry.Leases
	if r.Entry.Locked() == nil { // not recorded
		if r.cleaner.Finder.Sys == nil {
			return nil
		}
		var err error
		if leases, err = r.cleaner.AskedLeases(r.Entry); err != nil {
			return err
		}
	}
	err := r.cleaner.Journal.Free(&journal.Entry{Key: r.Entry.Key, Netns: r.Netns, Pod: r.Entry.Pod, Leases: leases})
	if errors.As(err, new(*journal.HeldError)) {
		return err
	}
	for _, l := range leases {
		if l.Mode != journal.Exclusive { // a PF may have hundreds of holders, whose entries DEL need not read
			continue
		}
		holders, err := r.cleaner.Journal.Holders(journal.OfDevice, l.ID)
		if err != nil {
			return err
		}
		for _, h := range holders {
			if e := h.Entry; h.Mode == l.Mode && e != nil && e.ContainerID != r.Entry.ContainerID && e.After(r.Entry) {
				return &journal.HeldError{Kind: journal.OfDevice, ID: l.ID, Holder: h} // a later sandbox of the same pod
			}
		}
	}
	return nil
}

// cannotExecute reports whether the kernel cannot run the delegate because it is not a program.
func cannotExecute(err error) bool {
	ran, ok := errors.AsType[*cniexec.Error](err)
	return ok && ran.NotRun() &&
		(errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC))
}
