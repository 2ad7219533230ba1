package cleanup

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/pod"
)

// WithinEnv is an environment variable with the attachment's key for delegates. Without it, a delegate that is devinfo
// itself, under another name or inside another plugin, would take the ADD for a killed one and call itself for ever.
const WithinEnv = "DEVINFO_WITHIN"

func within(k journal.Key) string { return WithinEnv + "=" + k.String() }

// Network returns delegates of an entry as a network, for calls with this network namespace.
func (c *Cleaner) Network(e *journal.Entry, delegates []json.RawMessage, netns string) (*cniexec.Network, error) {
	if c.Listen != nil {
		c.Listen()
	}
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
	exec := &cniexec.Exec{Root: c.Root, Limit: c.Limit, Inherit: e.Locked(), Stderr: os.Stderr}
	if e.ContainerID != "" { // GC and STATUS do not concern one attachment
		exec.Env = []string{within(e.Key)}
	}
	return &cniexec.Network{
		List: list, Runtime: rt, Dirs: filepath.SplitList(c.CNIPath), Exec: exec, Cache: c.Journal.Cache(e.Key),
	}, nil
}

// DelDelegates runs the DEL of all delegates, even if some fail. They must not take a device away from another pod
// that has got the device since ADD. If another pod has it, or if the path of the network namespace names another process
// now, the delegates get no network namespace. If the record of ADD is lost, a delegate does not run at all whose
// configuration names another pod's device.
//
// Without any entry the delegates have probably not run, because ADD failed before, and some, such as host-device, fail
// then. So only a delegate that asks to try again keeps the pod from ending.
func (r *Removal) DelDelegates() error {
	delegates := r.Delegates
	if r.Entry.Lost() {
		delegates = slices.DeleteFunc(slices.Clone(delegates), r.namesOthers)
	}
	if len(delegates) == 0 {
		return nil
	}
	if why := r.Entry.NetnsReused(r.Netns); why != "" {
		r.cleaner.Log.Warn(why)
		r.Netns = ""
	}
	netns, held := r.Netns, new(journal.HeldError)
	// If Holder.Netns is set, the holder is a lock of sriov-cni, which may be this attachment's own by another path.
	// Otherwise another pod got the device after the namespace had ended or a DEL was killed.
	if err := r.heldByAnother(r.Entry.Leases); errors.As(err, &held) && held.Holder.Netns == "" && netns != "" {
		r.cleaner.Log.Warn("running the delegates' DEL without a network namespace", "error", err)
		netns = ""
	}
	n, err := r.cleaner.Network(r.Entry, delegates, netns)
	if err != nil {
		return err
	}
	var errs []error
	for _, err := range n.Del(r.Result, nil) {
		err = failure.OfDelegate("DEL", err)
		if r.Entry.Locked() == nil && failure.Code(err) != failure.TryAgain {
			r.cleaner.Log.Warn("ignoring a delegate's failed DEL: the journal has no record of its ADD", "error", err)
			continue
		}
		errs = append(errs, err)
	}
	return failure.Join(errs...)
}

// namesOthers reports whether a delegate's configuration names a device that another pod has, or may do so.
func (r *Removal) namesOthers(delegate json.RawMessage) bool {
	if r.cleaner.Finder.Sys == nil {
		return false
	}
	leases, err := r.cleaner.AskedLeases(&journal.Entry{Delegates: []json.RawMessage{delegate}, CapabilityArgs: r.Entry.CapabilityArgs})
	if err == nil {
		err = r.heldByAnother(leases)
	}
	if err != nil {
		r.cleaner.Log.Warn("not running a delegate's DEL", "error", err)
	}
	return err != nil
}

// heldByAnother returns a [*journal.HeldError] if another pod, or a later sandbox of this pod, has one of the devices.
func (r *Removal) heldByAnother(leases []journal.DeviceLease) error {
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
