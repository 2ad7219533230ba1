package dra

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/dra/state"
)

// delete detaches attachments, all at the same time. It may be repeated until it
// succeeds: for a plugin, DEL of what is gone is no error.
func (a *Agent) delete(c *claim, which []int) {
	record := c.record.Clone()
	for _, n := range which {
		record.Attachments[n].Phase = state.Deleting
	}
	// Even without a record, what is on disk owes a DEL. One that is on a full disk
	// must be possible.
	a.putAnyway(c, record, "deleting")
	results := make(chan result)
	for _, n := range which {
		at := record.Attachments[n]
		orphaned := c.orphans[at.IfName]
		delete(c.orphans, at.IfName)
		go func() { results <- a.runDel(record, n, at, orphaned) }()
	}
	for range which {
		a.deleted(c, <-results)
	}
}

// runDel closes the gate and runs DEL.
func (a *Agent) runDel(record *state.Claim, n int, at state.Attachment, orphaned bool) result {
	if orphaned {
		a.cni.await(key(record.UID, &at))
	}
	err := a.closeGate(record, &at)
	if err == nil {
		err = a.detach(record.UID, &at)
	}
	return result{n, at, err}
}

// detach runs DEL as ADD was run, and removes what was kept for it.
func (a *Agent) detach(claim types.UID, at *state.Attachment) error {
	key := key(claim, at)
	netns, gone := at.Netns, ""
	switch {
	case at.BootID != a.BootID: // at its path is another by now, and the start has made all devices anew
		netns = ""
	case a.isGone(at.Netns):
		netns, gone = "", at.Netns
	}
	began := time.Now()
	err := a.cni.del(key, at, netns, gone)
	a.did("exec DEL")
	a.metrics.exec("DEL", time.Since(began), err)
	if err == nil {
		err = errors.Join(removeInfo(at), a.cni.forget(key))
	}
	return err
}

// deleted puts the result of a DEL on record.
func (a *Agent) deleted(c *claim, r result) {
	record := c.record.Clone()
	at := &record.Attachments[r.n]
	if r.err == nil && at.Note == nil { // else restore does
		r.err = a.letGo(record, at)
	}
	switch {
	case r.err != nil:
		at.Tries++
		at.DelError = r.err.Error()
		err := fmt.Errorf("claim %s, request %s: %w", c.ref, at.Request, r.err)
		a.Log.Error("pod is not detached yet", "pod", podOf(at), "sandbox", at.Sandbox, "tries", at.Tries, "error", err)
		a.pause(c, r.n, at, err)
		a.putAnyway(c, record, "not deleted")
		return
	case at.Note != nil:
		at.Phase, at.Tries, at.DelError = state.Restoring, 0, ""
	default:
		at.Reset(at.Error)
	}
	a.goOn(c, r.n)
	a.putAnyway(c, record, "deleted")
}

// pause keeps an attachment from repeating at once what has failed: DEL, or restoring its device.
// An error of nil is of a device that may be on its way back.
func (a *Agent) pause(c *claim, n int, at *state.Attachment, err error) {
	what, limit := "DEL", a.DelTries
	if at.Phase == state.Restoring {
		what, limit = "restoring it", restoreTries
	}
	pause := a.pauseAfter(at.Tries, limit)
	if err != nil {
		err = fmt.Errorf("%w; %s is tried again in %v; once the network namespace is gone and it has failed %d times (now %d) it is given up",
			err, what, pause.Round(time.Second), limit, at.Tries)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c.late[n] = retry{err: err, after: time.Now().Add(pause)}
}

// goOn ends that.
func (a *Agent) goOn(c *claim, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(c.late, n)
}

// pauseAfter is how long to wait after the n-th failure: doubled each time, so that as many
// tries as there may be take DelPatience.
func (a *Agent) pauseAfter(n, tries int) time.Duration {
	n = max(1, min(n, tries-1))
	first := float64(a.DelPatience) / max(1, math.Exp2(float64(tries-1))-1)
	return time.Duration(first * math.Exp2(float64(n-1)))
}

// sameDevice says whether two attachments are of one exclusive device: as the scheduler
// has allocated it, or as the device-info files say.
func sameDevice(a, b *state.Attachment) bool {
	if a.Exclusive() && b.Exclusive() && a.Pool == b.Pool && a.Device == b.Device {
		return true
	}
	one, other := a.PCI(), b.PCI()
	return one != "" && one == other
}

// removeInfo removes the device-info file, which the plugin that wrote it may have left.
func removeInfo(at *state.Attachment) error {
	dir, name := infoOf(at)
	return dir.Remove(name)
}

// letGo is for an attachment that has nothing any more. Its leases stay while another one in the
// record owes the same: one of a later sandbox, or one whose DEL was given up.
func (a *Agent) letGo(record *state.Claim, at *state.Attachment) error {
	owes := func(of state.Attachment) bool { return of.Owes() && of.Part() == at.Part() && of.Sandbox != at.Sandbox }
	if slices.ContainsFunc(record.Attachments, owes) || slices.ContainsFunc(record.Abandoned, owes) {
		return nil
	}
	return a.node.Leases.Release(record.UID, at)
}

// letGoAll is for attachments that no plugin is run for after all.
func (a *Agent) letGoAll(c *claim, which []int) {
	for _, n := range which {
		if err := a.letGo(c.record, &c.record.Attachments[n]); err != nil {
			a.Log.Warn("the leases of a claim stay until it is unprepared", "claim", c.ref, "error", err)
		}
	}
}
