package dra

import (
	"errors"
	"fmt"

	"devinfo-cni.io/pkg/dra/devices/custody"
	"devinfo-cni.io/pkg/dra/state"
)

const (
	// restoreTries is how often a device is restored before that is given up. They take as
	// long as the tries of DEL, and the first ones a fraction of a second.
	restoreTries = 10
	// slowTries is after how many of them it is said that a device is not back: until then
	// the kernel may be about to end its network namespace.
	slowTries = 4
)

// restore makes devices what they were before their sandboxes had them. It does not wait
// for one that is not back: it is called again.
func (a *Agent) restore(c *claim, which []int) {
	record := c.record.Clone()
	for _, n := range which {
		at := &record.Attachments[n]
		err := a.giveBack(record, at)
		if err == nil {
			err = a.letGo(record, at)
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
