package claim

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
func (s *steps) delete(c *claim, which []int) {
	record := c.record.Clone()
	s.table.mu.Lock()
	c.open = nil
	s.table.mu.Unlock()
	for _, n := range which {
		record.Attachments[n].Phase = state.Deleting
	}
	// Even without a record, what is on disk owes a DEL. One that is on a full disk
	// must be possible.
	s.records.putAnyway(c, record, "deleting")
	results := make(chan result)
	for _, n := range which {
		at := record.Attachments[n]
		orphaned := c.orphans[at.IfName]
		delete(c.orphans, at.IfName)
		go func() { results <- s.runDel(record, n, at, orphaned) }()
	}
	for range which {
		s.deleted(c, <-results)
	}
}

// runDel closes the gate and runs DEL.
func (s *steps) runDel(record *state.Claim, n int, at state.Attachment, orphaned bool) result {
	if orphaned {
		s.cni.await(key(record.UID, &at))
	}
	err := s.gate.closeGate(record, &at)
	if err == nil {
		err = s.detach(record.UID, &at)
	}
	return result{n, at, err}
}

// detach runs DEL as ADD was run, and removes what was kept for it.
func (s *steps) detach(claim types.UID, at *state.Attachment) error {
	key := key(claim, at)
	netns, gone := at.Netns, ""
	switch {
	case at.BootID != s.BootID: // at its path is another by now, and the start has made all devices anew
		netns = ""
	case isGone(s.Netns, at.Netns):
		netns, gone = "", at.Netns
	}
	began := time.Now()
	err := s.cni.del(key, at, netns, gone)
	s.Step("exec DEL")
	s.metrics.exec("DEL", time.Since(began), err)
	if err == nil {
		err = errors.Join(removeInfo(at), s.cni.forget(key))
	}
	return err
}

// deleted puts the result of a DEL on record.
func (s *steps) deleted(c *claim, r result) {
	record := c.record.Clone()
	at := &record.Attachments[r.n]
	if r.err == nil && at.Note == nil { // else restore does
		r.err = s.letGo(record, at)
	}
	switch {
	case r.err != nil:
		at.Tries++
		at.DelError = r.err.Error()
		err := c.about(at, r.err)
		s.Log.Error("pod is not detached yet", "pod", podOf(at), "sandbox", at.Sandbox, "tries", at.Tries, "error", err)
		s.pause(c, r.n, at, err)
		s.records.putAnyway(c, record, "not deleted")
		return
	case at.Note != nil:
		at.Phase, at.Tries, at.DelError = state.Restoring, 0, ""
	default:
		at.Reset(at.Error)
	}
	s.table.do(func() { delete(c.late, r.n) })
	s.records.putAnyway(c, record, "deleted")
}

// pause keeps an attachment from repeating at once what has failed: DEL, or restoring its device.
// An error of nil is of a device that may be on its way back.
func (s *steps) pause(c *claim, n int, at *state.Attachment, err error) {
	what, limit := "DEL", s.DelTries
	if at.Phase == state.Restoring {
		what, limit = "restoring it", restoreTries
	}
	pause := s.pauseAfter(at.Tries, limit)
	if err != nil {
		err = fmt.Errorf("%w; %s is tried again in %v; once the network namespace is gone and it has failed %d times (now %d) it is given up",
			err, what, pause.Round(time.Second), limit, at.Tries)
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	c.late[n] = retry{err: err, after: time.Now().Add(pause)}
}

// pauseAfter is how long to wait after the n-th failure: doubled each time, so that as many
// tries as there may be take DelPatience.
func (s *steps) pauseAfter(n, tries int) time.Duration {
	n = max(1, min(n, tries-1))
	first := float64(s.DelPatience) / max(1, math.Exp2(float64(tries-1))-1)
	return time.Duration(first * math.Exp2(float64(n-1)))
}

// removeInfo removes the device-info file, which the plugin that wrote it may have left.
func removeInfo(at *state.Attachment) error {
	dir, name := infoOf(at)
	return dir.Remove(name)
}

// letGo is for an attachment that has nothing any more. Its leases stay while another one in the
// record owes the same: one of a later sandbox, or one whose DEL was given up.
func (s *steps) letGo(record *state.Claim, at *state.Attachment) error {
	owes := func(of state.Attachment) bool { return of.Owes() && of.Part() == at.Part() && of.Sandbox != at.Sandbox }
	if slices.ContainsFunc(record.Attachments, owes) || slices.ContainsFunc(record.Abandoned, owes) {
		return nil
	}
	return s.Node.Leases.Release(record.UID, at)
}

// letGoAll is for attachments that no plugin is run for after all.
func (s *steps) letGoAll(c *claim, which []int) {
	for _, n := range which {
		if err := s.letGo(c.record, &c.record.Attachments[n]); err != nil {
			s.Log.Warn("the leases of a claim stay until it is unprepared", "claim", c.ref, "error", err)
		}
	}
}
