package claim

import (
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

// execute does a step. What it has come to is on record when it returns.
func (s *steps) execute(c *claim, next step, sb *sandbox) error {
	switch next.do {
	case doAdd:
		return s.add(c, next.at, sb)
	case doDel:
		s.delete(c, next.at)
		return nil
	case doAgain:
		s.deleteAgain(c, next.at)
		return nil
	case doReturn:
		s.restore(c, next.at)
		return nil
	case doOpen:
		return s.reopen(c, next.at)
	case giveUp:
		return s.abandon(c, next.at)
	case doSave:
		return s.saveNow(c)
	case doBlame:
		s.setBlame(c)
		return nil
	case doForget:
		return s.forgetNow(c)
	case doClear:
		return s.clear(c, next.at)
	case reported:
		record := c.record.Clone()
		record.StatusOwed = false
		return s.records.put(c, record, "reported")
	}
	return fmt.Errorf("claim %s: step %q is not known", c.ref, next.do)
}

// saveNow writes the record, or forgets a claim that was never written: the kubelet is
// told that it is not prepared.
func (s *steps) saveNow(c *claim) error {
	name, record, fresh := "saved", c.record.Clone(), c.fresh
	if fresh {
		name = "prepared"
		s.describeBare(record)
	}
	err := s.records.put(c, record, name)
	switch {
	case err == nil && record.StatusOwed:
		s.reports.queue.Add(c.ref.UID)
	case err != nil && fresh:
		s.table.mu.Lock()
		c.trouble.err = err
		s.table.mu.Unlock()
		s.records.drop(c, c.left())
	}
	return err
}

// describeBare notes what devices are that no plugin will tell of, for the status.
func (s *steps) describeBare(record *state.Claim) {
	for n := range record.Attachments {
		if at := &record.Attachments[n]; at.Bare() {
			if info := s.Node.Describe(at); info != nil {
				at.Info = info.Encode()
			}
			record.StatusOwed = true
		}
	}
}

// setBlame notes for the status why what is not attached is not.
func (s *steps) setBlame(c *claim) {
	s.table.mu.Lock()
	blame := c.blame
	s.table.mu.Unlock()
	record := c.record.Clone()
	for n := range record.Attachments {
		at := &record.Attachments[n]
		if at.Phase == state.Added || at.Bare() {
			continue
		}
		if at.Error == "" {
			at.Error = blame
		}
		at.Ready.Set(metav1.ConditionFalse, time.Now())
	}
	record.StatusOwed = true
	s.records.putAnyway(c, record, "blamed")
	s.table.mu.Lock()
	if c.blame == blame {
		c.blame = ""
	}
	s.table.mu.Unlock()
	s.reports.queue.Add(c.ref.UID)
}

// reopen opens the gates that are closed though the networks are there, and those whose
// metadata somebody has written over.
func (s *steps) reopen(c *claim, which []int) error {
	s.table.mu.Lock()
	rewrite := c.rewrite
	c.rewrite = false
	s.table.mu.Unlock()
	err := s.gate.open(c, which)
	if err != nil {
		s.table.mu.Lock()
		c.rewrite = c.rewrite || rewrite
		s.table.mu.Unlock()
	}
	return err
}

// release lets go of all that attachments have which owe nothing: the gates of what has no
// network of ours, and leases that were taken for an ADD before which the agent was killed.
func (s *steps) release(c *claim) error {
	for n := range c.record.Attachments {
		at := &c.record.Attachments[n]
		if at.Bare() {
			if err := s.gate.closeGate(c.record, at); err != nil {
				return fmt.Errorf("claim %s, request %s: %w", c.ref, at.Request, err)
			}
		}
		if err := s.letGo(c.record, at); err != nil {
			return fmt.Errorf("claim %s, request %s: %w", c.ref, at.Request, err)
		}
	}
	return nil
}

// forgetNow removes the record, or all of it but what was abandoned.
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
