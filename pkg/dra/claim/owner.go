package claim

import (
	"fmt"
	"slices"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/plan"
	"devinfo-cni.io/pkg/dra/cniconfig"
)

// holder is an attachment on record that has the device of another one: see [sameDevice].
type holder struct {
	of        *claim
	at        *state.Attachment
	n         int // index in the record's Attachments or Undeleted
	undeleted bool
}

// holders returns the attachments on record with the device of an attachment, itself too; nil = all. The mutex must be held.
func (t *table) holders(at *state.Attachment) (list []holder) {
	for _, c := range t.claims {
		for n, all := range [][]state.Attachment{c.record.Attachments, c.record.Undeleted} {
			for i := range all {
				if at == nil || sameDevice(&all[i], at) {
					list = append(list, holder{c, &all[i], i, n == 1})
				}
			}
		}
	}
	return list
}

// sameDevice reports whether two attachments have the same device and at least one of them has it exclusively.
// It compares the scheduler's allocation and the PCI address of the device-info files. Pods on one macvlan
// master have its PCI address in common but are not the same device.
func sameDevice(a, b *state.Attachment) bool {
	switch {
	case a.Exclusive() && b.Exclusive() && a.Pool == b.Pool && a.Device == b.Device:
		return true
	case a.Info == nil || b.Info == nil || !a.Exclusive() && !b.Exclusive(): // reading the files is slow
		return false
	}
	one := a.PCI()
	return one != "" && one == b.PCI()
}

// exclude reports whether only one of two attachments may have its device at a time: they have the same device, or two
// ports of one function.
func exclude(a, b *state.Attachment) bool {
	if a.NodeDevice == nil || b.NodeDevice == nil || a.NodeDevice.Shared() && b.NodeDevice.Shared() {
		return false
	}
	function := a.NodeDevice.Function()
	return a.Device == b.Device || function != "" && function == b.NodeDevice.Function()
}

// has reports whether a plugin or a pod may have the device. An undeleted attachment has it only while its DEL is retried.
func (h holder) has() bool {
	return h.at.Owes() && (!h.undeleted || h.of.runningStep == plan.DoDelAgain)
}

// isDeviceInUse reports whether another attachment has the device of an undeleted one of c, is about to get it, or runs DEL
// for it. A retry of the DEL would then take the device away from that attachment. The mutex must be held.
func (t *table) isDeviceInUse(c *claim, at *state.Attachment) bool {
	return slices.ContainsFunc(t.holders(at), func(h holder) bool {
		isNext := !h.undeleted && (h.of.runningStep == plan.DoAdd || h.of.runningStep == plan.DoOpen)
		isBare := !h.undeleted && h.at.Bare() && h.of.gatesOpen[h.n] // its lease is held
		return isNext || isBare || h.has() && !(h.undeleted && h.of == c)
	})
}

// check returns the rule that is broken if pod holds c, or nil. Prepare, the start of a sandbox and the sweep all
// check it. The mutex must be held.
func (t *table) check(c *claim, pod state.Pod) error {
	var networks []cniconfig.Network
	for _, at := range c.record.Attachments {
		networks = append(networks, cniconfig.Network{Attachment: at})
		if sb := t.sandboxes[at.Sandbox]; at.Phase == state.Added && t.runs(sb) && !sb.isOf(pod) {
			return fmt.Errorf("claim %s is attached to sandbox %s of pod %s/%s", c.name(), sb.ID, sb.Pod.Namespace, sb.Pod.Name)
		}
	}
	taken := map[string]string{}
	for _, other := range t.claims {
		if other.uid() == c.uid() {
			continue
		}
		for _, its := range other.record.Attachments {
			if other.isFor(pod) {
				taken[its.IfName] = "claim " + other.name()
			}
			for _, at := range c.record.Attachments {
				if at.Owes() && its.Owes() && exclude(&at, &its) {
					return fmt.Errorf("claims %s and %s both have device %s or its function", c.name(), other.name(), at.Device)
				}
			}
		}
	}
	if refusal := cniconfig.Distinct(networks, taken); refusal != nil {
		return fmt.Errorf("claim %s: %w", c.name(), refusal)
	}
	return nil
}

// withheldDevices returns the devices of a record that no other claim may get.
func withheldDevices(record *state.Claim) (devices []string) {
	for _, at := range slices.Concat(record.Attachments, record.Undeleted) {
		if at.Withheld() {
			devices = append(devices, at.Device)
		}
	}
	return devices
}

// isIdle reports whether no sandbox has a claim, and the runtime has listed all sandboxes. The mutex must be held.
func (t *table) isIdle(c *claim) bool {
	return t.synced && !c.record.Unprepared() && t.sandboxOf(c.pod.UID) == nil &&
		!slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool { return t.runs(t.sandboxes[at.Sandbox]) })
}

// reserve assigns an unused claim to one of the pods in its status.reservedFor. The mutex must be held.
func (t *table) reserve(c *claim, pods []state.Pod) {
	running := slices.IndexFunc(pods, func(p state.Pod) bool { return t.sandboxOf(p.UID) != nil })
	switch {
	case t.isInUse(c):
	case running >= 0:
		_ = t.assign(c, pods[running]) // otherwise the pod's sandbox is rejected with the reason
	case !slices.ContainsFunc(pods, c.isFor):
		_ = t.assign(c, pods[0])
	}
}

// assign makes pod the owner of a claim, unless that breaks a rule. The mutex must be held.
func (t *table) assign(c *claim, pod state.Pod) error {
	if c.isFor(pod) {
		return nil
	}
	if err := t.check(c, pod); err != nil {
		return err
	}
	c.pod = pod
	t.wakeNow(c)
	return nil
}

// isInUse reports whether a sandbox may have a claim. If in doubt, it returns true. The mutex must be held.
func (t *table) isInUse(c *claim) bool {
	return !t.synced && c.saved != nil || t.sandboxOf(c.pod.UID) != nil || slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool {
		if at.Phase != state.Adding && at.Phase != state.Added {
			return false
		}
		if sb := t.sandboxes[at.Sandbox]; sb != nil {
			return t.runs(sb)
		}
		return at.BootID == t.bootID && !t.goneNetns[at.Netns]
	})
}
