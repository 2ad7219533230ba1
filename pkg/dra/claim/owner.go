package claim

import (
	"fmt"
	"slices"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/plan"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices"
)

// Holders implements [devices.Claims]. An undeleted attachment has its device only while its DEL is retried.
func (t *table) Holders(of *state.Attachment) (list []devices.Holder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.claims {
		for _, all := range [][]state.Attachment{c.record.Attachments, c.record.Undeleted} {
			for n := range all {
				if at := &all[n]; of == nil || sameDevice(at, of) {
					has := at.Owes() && (at.Phase != state.Undeleted || c.runningStep == plan.DoDelAgain)
					list = append(list, devices.Holder{Claim: c.uid(), Name: c.name(), Attachment: at, Has: has})
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

// isDeviceInUse reports whether another attachment has the device of an undeleted one of c, is about to get it, or runs DEL
// for it. A retry of the DEL would then take the device away from that attachment. The mutex must be held.
func (t *table) isDeviceInUse(c *claim, at *state.Attachment) bool {
	for _, of := range t.claims {
		isNext := of.runningStep == plan.DoAdd || of.runningStep == plan.DoOpen
		for n, its := range of.record.Attachments {
			isOpen := its.Bare() && of.gatesOpen[n] // its lease is held
			if sameDevice(&its, at) && (isNext || isOpen || its.Owes()) {
				return true
			}
		}
		isSame := func(its state.Attachment) bool { return sameDevice(&its, at) }
		if of != c && of.runningStep == plan.DoDelAgain && slices.ContainsFunc(of.record.Undeleted, isSame) {
			return true
		}
	}
	return false
}

// check returns an error if pod cannot hold c, because another claim of the pod has an interface name of c. The mutex must
// be held.
func (t *table) check(c *claim, pod state.Pod) error {
	taken := map[string]string{}
	for _, other := range t.claimsOf(pod) {
		for _, at := range other.record.Attachments {
			if other.uid() != c.uid() {
				taken[at.IfName] = "claim " + other.name()
			}
		}
	}
	if refusal := cniconfig.Distinct(c.record.Attachments, taken); refusal != nil {
		return fmt.Errorf("claim %s: %w", c.name(), refusal)
	}
	return nil
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
