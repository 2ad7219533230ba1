package claim

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/pkg/dra/state"
)

// steps does what [reconcile] decides. The results are on record when a step returns.
type steps struct {
	Options
	table   *table
	records *records
	gate    *gate
	reports *reports
	notices *notices
	metrics *metrics
	cni     plugins
}

func (s *steps) execute(c *claim, next step, sb *sandbox) error {
	switch next.do {
	case doAdd:
		return s.add(c, next.at, sb)
	case doDel:
		s.delete(c, next.at)
	case doAgain:
		s.deleteAgain(c, next.at)
	case doReturn:
		s.restore(c, next.at)
	case doOpen:
		return s.reopen(c, next.at)
	case doGiveUp:
		return s.giveUp(c, next.at)
	case doSave:
		return s.saveNow(c)
	case doBlame:
		s.setBlame(c)
	case doForget:
		return s.forgetNow(c)
	case doClear:
		return s.clear(c, next.at)
	case doMarkReported:
		record := c.record.Clone()
		record.StatusOwed = false
		return s.records.put(c, record, "reported")
	default:
		return fmt.Errorf("claim %s: unknown step %q", c.ref, next.do)
	}
	return nil
}

// saveNow writes the record. If the first write fails, the claim is dropped, and Prepare fails.
func (s *steps) saveNow(c *claim) error {
	name, record, fresh := "saved", c.record.Clone(), c.fresh
	if fresh {
		name = "prepared"
		for n := range record.Attachments {
			if at := &record.Attachments[n]; at.Bare() { // no plugin will describe it
				record.StatusOwed = true
				if info := s.Node.Describe(at); info != nil {
					at.Info = info.Encode()
				}
			}
		}
	}
	err := s.records.put(c, record, name)
	switch {
	case err == nil && record.StatusOwed:
		s.reports.queue.Add(c.ref.UID)
	case err != nil && fresh:
		s.table.do(func() { c.trouble.err = err })
		s.records.drop(c, c.left())
	}
	return err
}

// setBlame records in the status why attachments are not attached.
func (s *steps) setBlame(c *claim) {
	var blame string
	s.table.do(func() { blame = c.blame })
	record := c.record.Clone()
	for n := range record.Attachments {
		if at := &record.Attachments[n]; at.Phase != state.Added && !at.Bare() {
			at.Error = cmp.Or(at.Error, blame)
			at.Ready.Set(metav1.ConditionFalse, time.Now())
		}
	}
	record.StatusOwed = true
	s.records.putAnyway(c, record, "blamed")
	s.table.do(func() {
		if c.blame == blame {
			c.blame = ""
		}
	})
	s.reports.queue.Add(c.ref.UID)
}

// reopen opens the gates of attached networks that are closed or whose metadata somebody has written over.
func (s *steps) reopen(c *claim, which []int) error {
	var rewrite bool
	s.table.do(func() { rewrite, c.rewrite = c.rewrite, false })
	err := s.gate.open(c, which)
	if err != nil {
		s.table.do(func() { c.rewrite = c.rewrite || rewrite })
	}
	return err
}

// release frees what attachments without pending work still hold: the gates of devices without a network, and
// leases that were taken for an ADD before which the process was killed.
func (s *steps) release(c *claim) error {
	for _, at := range c.record.Attachments {
		var err error
		if at.Bare() {
			err = s.gate.closeGate(c.record, &at)
		}
		if err == nil {
			err = s.letGo(c.record, &at)
		}
		if err != nil {
			return c.about(&at, err)
		}
	}
	return nil
}

// forgetNow removes the record. Undeleted attachments stay on record.
func (s *steps) forgetNow(c *claim) error {
	if err := s.release(c); err != nil {
		return err
	}
	left, err := c.left(), error(nil)
	if left == nil {
		err = s.records.files.Remove(c.ref.UID)
	} else {
		err = s.records.files.Put(left.record)
	}
	if err != nil {
		return fmt.Errorf("claim %s: %w", c.ref, err)
	}
	s.Step("forgotten")
	s.records.drop(c, left)
	return nil
}
