package claim

import (
	"fmt"
	"slices"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/devices"
)

// load reads the records that an earlier process wrote.
func (s *steps) load() error {
	records, problems, err := s.files.All(devices.CheckRecord)
	if err != nil {
		return err
	}
	for _, record := range records {
		s.table.claims[record.UID] = newClaim(record)
		s.table.lastClaim = max(s.table.lastClaim, record.Order)
		if record.StatusOwed {
			s.reports.queue.Add(record.UID)
		}
	}
	for _, p := range problems {
		s.table.problems[p.UID] = p
		s.options.Log.Error("unreadable claim record; the networks and devices of the claim stay attached until an administrator detaches them",
			"claimUID", p.UID, "error", p.Err, "setAside", p.Aside, "remedy", "detach them, remove the file setAside and restart the driver")
	}
	return nil
}

// put writes a record to disk, then makes it the claim's record.
func (s *steps) put(c *claim, record *state.Claim, name string) error {
	s.table.do(func() { record.Pod = c.pod })
	if err := s.files.Put(record); err != nil {
		return fmt.Errorf("record claim %s: %w", c.ref, err)
	}
	s.options.Reached(name)
	s.setRecord(c, record, true)
	return nil
}

// putOrRetry is put for a step that is already done. If the write fails, the new record is used anyway, and the
// worker writes it later. After a crash the step is repeated.
func (s *steps) putOrRetry(c *claim, record *state.Claim, name string) {
	if err := s.put(c, record, name); err != nil {
		s.options.Log.Warn("cannot write a claim record; retrying", "error", err)
		s.setRecord(c, record, false)
	}
}

// setRecord replaces the claim's record. saved reports whether the new record is on disk.
func (s *steps) setRecord(c *claim, record *state.Claim, saved bool) {
	all := slices.Concat(c.record.Attachments, c.record.Undeleted, record.Attachments, record.Undeleted)
	if slices.ContainsFunc(all, func(at state.Attachment) bool { return at.Withheld() }) { // before or now
		defer s.node.Publish()
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if network.RDMAVariable(c.record.Attachments) != network.RDMAVariable(record.Attachments) {
		s.table.wakePod(c.pod) // the gates of the pod's other claims list its RDMA devices too
	}
	if record.Pod != c.record.Pod {
		c.gatesOpen = map[int]bool{} // the gates of devices without a network still admit the former pod
	}
	former := c.record
	c.record = record
	for _, at := range former.Attachments {
		needsNetns := func(c *claim) bool { return c.hasPendingDel(at.Sandbox) }
		if at.HasNetns(s.table.bootID) && s.table.claimsWhere(needsNetns) == nil {
			s.networks.Namespaces.Close(at.Sandbox)
		}
	}
	if saved {
		c.saved = record
	}
	s.table.notifyWaiters()
}

// drop removes c from the table. If left is not nil, left replaces c.
func (s *steps) drop(c, left *claim) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	delete(s.table.claims, c.uid())
	if left != nil {
		s.table.claims[c.uid()] = left
	}
	s.table.wakePod(c.pod)
	s.reports.queue.Forget(c.uid())
	s.table.notifyWaiters()
}
