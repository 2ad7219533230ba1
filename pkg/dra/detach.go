package dra

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"devinfo-cni.io/pkg/dra/state"
)

// detachAll detaches those attachments that owe a DEL and are wanted, the last one
// first. It goes on after a failure. why is the error that is kept of the reason.
func (a *Agent) detachAll(claims []*claim, wanted func(*state.Attachment) bool, why string) error {
	var errs []error
	for _, c := range slices.Backward(claims) {
		if c.gone {
			continue
		}
		for n := range slices.Backward(c.record.Attachments) {
			at := &c.record.Attachments[n]
			if !at.Owes() || !wanted(at) {
				continue
			}
			if err := a.detach(c, at, why); err != nil {
				errs = append(errs, fmt.Errorf("claim %s, request %s: %w", c.ref, at.Request, err))
			}
		}
	}
	return errors.Join(errs...)
}

// detach closes the gate and runs DEL as ADD was run. It may be repeated until it
// succeeds: DEL of what is gone is none of a plugin's errors.
func (a *Agent) detach(c *claim, at *state.Attachment, why string) error {
	if why == "" || at.Error != "" {
		why = at.Error
	}
	orphans := c.orphans[at.IfName]
	at.Phase = state.Deleting
	if err := a.save(c, "deleting"); err != nil {
		// What is on disk owes a DEL too. One that is on a full disk must be possible.
		a.Log.Warn("DEL is run without a record of it", "error", err)
	}
	if orphans {
		a.cni.await(key(c, at))
		delete(c.orphans, at.IfName)
	}
	if err := a.close(c, at); err != nil {
		return a.notDetached(c, at, err)
	}
	netns := at.Netns
	if at.BootID != a.BootID || a.gone(netns) {
		netns = ""
	}
	began := time.Now()
	err := a.cni.del(key(c, at), at, netns)
	a.step("exec DEL")
	a.executed("DEL", began, err)
	if err != nil {
		return a.notDetached(c, at, err)
	}
	if err := errors.Join(a.removeInfo(at), a.cni.forget(key(c, at))); err != nil {
		return a.notDetached(c, at, err)
	}
	at.Reset(why)
	if err := a.save(c, "deleted"); err != nil {
		a.Log.Warn("DEL was run, and will be again after a restart", "error", err)
	}
	return nil
}

func (a *Agent) notDetached(c *claim, at *state.Attachment, err error) error {
	if at.Error == "" {
		at.Error = err.Error()
	}
	return errors.Join(err, a.save(c, "not deleted"))
}

// removeInfo removes the device-info file, which the plugin that wrote it may have left.
func (a *Agent) removeInfo(at *state.Attachment) error {
	name, err := a.infos.Name(at.InfoFile)
	if err != nil {
		return err
	}
	return a.infos.Remove(name)
}
