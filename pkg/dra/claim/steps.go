package claim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/devices"
)

// steps executes the steps that [plan.Next] returns. Their results are on record when execute returns.
type steps struct {
	options  Options
	table    *table
	files    *state.Store // the claims on disk
	gate     *gate
	reports  *reports
	notices  *notices
	metrics  *metrics
	node     *devices.Node
	networks *network.Runner
	opened   func(device string) // see [Engine.SetOpened]
}

// save writes the record. Before the first write it describes the devices without a network. If the first write
// fails, it drops the claim, so that Prepare fails.
func (s *steps) save(c *claim) error {
	name, record, fresh := "saved", c.record.Clone(), c.saved == nil
	if fresh {
		name = "prepared"
		for n := range record.Attachments {
			if at := &record.Attachments[n]; at.Bare() { // no plugin will describe it
				record.StatusOwed = true
				if info := s.node.Describe(at); info != nil {
					at.Info = info.Encode()
				}
			}
		}
	}
	err := s.put(c, record, name)
	switch {
	case err == nil && record.StatusOwed:
		s.reports.queue.Add(c.uid())
	case err != nil && fresh:
		s.table.do(func() { c.failure.err = err })
		s.drop(c, c.remainder())
	}
	return err
}

// recordAttachError records in the status why attachments are not attached.
func (s *steps) recordAttachError(c *claim) {
	var blame string
	s.table.do(func() { blame = c.attachError })
	record := c.record.Clone()
	for n := range record.Attachments {
		if at := &record.Attachments[n]; at.Phase != state.Added && !at.Bare() {
			at.Error = cmp.Or(at.Error, blame)
			at.Ready.Set(string(metav1.ConditionFalse), time.Now())
		}
	}
	record.StatusOwed = true
	s.putOrRetry(c, record, "error recorded")
	s.table.do(func() {
		if c.attachError == blame {
			c.attachError = ""
		}
	})
	s.reports.queue.Add(c.uid())
}

// forget closes the gates, ends all leases, and removes the record, except its undeleted attachments. No DEL is pending, but
// a process that was killed before its ADD may have left leases.
func (s *steps) forget(c *claim) error {
	for _, at := range c.record.Attachments {
		err := s.gate.closeGate(c.record, &at)
		if err == nil {
			err = s.releaseLeases(c.record, &at)
		}
		if err != nil {
			return c.wrap(&at, err)
		}
	}
	left, err := c.remainder(), error(nil)
	if left == nil {
		err = s.files.Remove(c.uid())
	} else {
		err = s.files.Put(left.record)
	}
	if err != nil {
		return fmt.Errorf("claim %s: %w", c.ref, err)
	}
	s.options.Reached("forgotten")
	s.drop(c, left)
	return nil
}

// releaseLeases ends the leases of an attachment, unless the claim still has the device for another sandbox.
func (s *steps) releaseLeases(record *state.Claim, at *state.Attachment) error {
	if slices.ContainsFunc(slices.Concat(record.Attachments, record.Undeleted), func(other state.Attachment) bool {
		return other.Owes() && other.Part() == at.Part() && other.Sandbox != at.Sandbox
	}) {
		return nil
	}
	return s.node.Leases.Release(record.UID, at)
}
