package dra

import (
	"fmt"

	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/state"
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
	former, err := a.Custody.Look(at.Node.Ref)
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
		for n := range c.record.Abandoned {
			if old := &c.record.Abandoned[n]; old.Former != nil && old.BootID == a.BootID && sameDevice(old, at) {
				return old.Former
			}
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
