package dra

import (
	"errors"
	"fmt"

	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/dra/custody"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/inventory"
)

const (
	// restoreTries is how often a device is restored before that is given up. They take as
	// long as the tries of DEL, and the first ones a fraction of a second.
	restoreTries = 10
	// slowTries is after how many of them it is said that a device is not back: until then
	// the kernel may be about to end its network namespace.
	slowTries = 4
)

// check says what keeps a network from being added, and else what its device is like, for
// DEL to restore; nil = there is nothing to restore.
func (a *Agent) check(at *state.Attachment) (*state.Former, error) {
	if err := a.cni.check(at); err != nil {
		return nil, err
	}
	if at.Node == nil || at.Node.Shared() {
		return nil, nil
	}
	if why := a.hostNeeds(at.Device); why != "" {
		return nil, &cniexec.Error{Reason: cniexec.ReasonNode, Err: fmt.Errorf("device %s: %s: delete the pod, to have another one allocated", at.Device, why)}
	}
	if a.Custody == nil && at.Driver == "" {
		return nil, nil
	}
	if a.Custody == nil {
		return nil, &cniexec.Error{Reason: cniexec.ReasonNode, Err: fmt.Errorf("device %s: driver: %s: this agent binds none", at.Device, at.Driver)}
	}
	former, err := a.Custody.Look(at.Node)
	if old := a.noted(at); err == nil && old != nil && !old.IsReplaced(former) {
		former = *old
	}
	if err == nil && at.Driver != "" && former.Driver != at.Driver {
		err = a.mayRebind(at, former)
	}
	if err != nil {
		return nil, &cniexec.Error{Reason: cniexec.ReasonNode, Err: fmt.Errorf("device %s: %w", at.Device, err)}
	}
	return &former, nil
}

// noted is what a device was before it was given up, which it is still to become, though
// the scheduler has allocated it before it was withheld; nil = it was not given up.
func (a *Agent) noted(at *state.Attachment) *state.Former {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.claims {
		if old := c.record.Abandoned(); old != nil && old.Former != nil && old.BootID == a.BootID && sameDevice(old, at) {
			return old.Former
		}
	}
	return nil
}

// mayRebind refuses to take a function from its driver that somebody uses.
func (a *Agent) mayRebind(at *state.Attachment, former state.Former) error {
	if a.Inventory == nil {
		return fmt.Errorf("driver: %s: this node offers no devices of its own", at.Driver)
	}
	host, err := a.Inventory.Host()
	if err != nil {
		return err
	}
	why, err := inventory.Busy(host, at.Device)
	if err != nil {
		return err
	}
	if why != "" {
		return fmt.Errorf("driver: %s: it is busy: %s: free it, or select another device", at.Driver, why)
	}
	return a.Custody.MayBind(former, at.Driver)
}

// bindDriver gives a device to the driver that the sandbox is to have it with.
func (a *Agent) bindDriver(at *state.Attachment) error {
	if at.Driver == "" || at.Former == nil || at.Former.Driver == at.Driver {
		return nil
	}
	err := a.Custody.Bind(*at.Former, at.Driver)
	a.did("bound")
	if err != nil {
		return fmt.Errorf("device %s: driver: %s: %w", at.Device, at.Driver, err)
	}
	return nil
}

// restore makes devices what they were before their sandboxes had them. It does not wait
// for one that is not back: it is called again.
func (a *Agent) restore(c *claim, which []int) {
	record := c.record.Clone()
	for _, n := range which {
		at := &record.Attachments[n]
		err := a.giveBack(record, at)
		if err == nil {
			err = a.letGo(c, at)
		}
		a.did("restored")
		if err == nil {
			at.Reset(at.Error)
			a.goOn(c, n)
			continue
		}
		at.Tries++
		if at.Tries == restoreTries {
			a.mismatches(err)
		}
		if errors.Is(err, custody.ErrAway) && at.Tries < slowTries {
			a.pause(c, n, at, nil)
			continue
		}
		at.DelError = err.Error()
		a.Log.Warn("a device is not what it was before the pod had it", "pod", record.Pod, "device", at.Device, "tries", at.Tries, "error", err)
		a.pause(c, n, at, fmt.Errorf("claim %s, request %s: %w", c.ref, at.Request, err))
	}
	a.putAnyway(c, record, "restored or not")
}

// giveBack restores the device of an attachment that DEL has succeeded for. What was noted
// before the node was started is no more: the device is as the start has made it.
func (a *Agent) giveBack(record *state.Claim, at *state.Attachment) error {
	if at.Former == nil || at.BootID != a.BootID || a.Custody == nil {
		return nil
	}
	if err := a.notOthers(record, at); err != nil {
		return err
	}
	did, err := a.Custody.Restore(*at.Former)
	for _, what := range did {
		a.metrics.mismatch(what, true)
	}
	if did != nil {
		a.Log.Info("restored what no plugin has", "device", at.Device, "what", did)
	}
	if errors.Is(err, custody.ErrGone) {
		a.Log.Warn("a device that a pod had is gone", "device", at.Device, "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("device %s: %w", at.Device, err)
	}
	return nil
}

// mismatches counts what is given up.
func (a *Agent) mismatches(err error) {
	what := []string{custody.Away}
	if m := (*custody.Mismatch)(nil); errors.As(err, &m) {
		what = m.What
	}
	for _, what := range what {
		a.metrics.mismatch(what, false)
	}
}
