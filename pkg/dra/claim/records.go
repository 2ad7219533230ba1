package claim

import (
	"fmt"
	"log/slog"
	"slices"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/devices"
)

// records are the claims on disk.
type records struct {
	table   *table
	files   *state.Store
	reports *reports
	node    *devices.Node
	reached func(name string)
	log     *slog.Logger

	closeNetns func(sandbox string) // closes a network namespace after the last DEL of its sandbox
}

// load reads the records that an earlier process wrote.
func (r *records) load() error {
	records, problems, err := r.files.All(devices.CheckRecord)
	if err != nil {
		return err
	}
	for _, record := range records {
		r.table.claims[record.UID] = newClaim(record)
		r.table.lastClaim = max(r.table.lastClaim, record.Order)
		if record.StatusOwed {
			r.reports.queue.Add(record.UID)
		}
	}
	for _, p := range problems {
		r.table.problems[p.UID] = p
		r.log.Error("unreadable claim record; the networks and devices of the claim stay attached until an administrator detaches them",
			"claimUID", p.UID, "error", p.Err, "setAside", p.Aside, "remedy", "detach them, remove the file setAside and restart the driver")
	}
	return nil
}

// put writes a record to disk, then makes it the claim's record.
func (r *records) put(c *claim, record *state.Claim, name string) error {
	r.table.do(func() { record.Pod = c.pod })
	if err := r.files.Put(record); err != nil {
		return fmt.Errorf("record claim %s: %w", c.ref, err)
	}
	r.reached(name)
	r.setRecord(c, record, true)
	return nil
}

// putOrRetry is put for a step that is already done. If the write fails, the new record is used anyway, and the
// worker writes it later. After a crash the step is repeated.
func (r *records) putOrRetry(c *claim, record *state.Claim, name string) {
	if err := r.put(c, record, name); err != nil {
		r.log.Warn("cannot write a claim record; retrying", "error", err)
		r.setRecord(c, record, false)
	}
}

// setRecord replaces the claim's record. saved reports whether the new record is on disk.
func (r *records) setRecord(c *claim, record *state.Claim, saved bool) {
	if !slices.Equal(withheldDevices(c.record), withheldDevices(record)) {
		defer r.node.Publish()
	}
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	if network.RDMAVariable(c.record.Attachments) != network.RDMAVariable(record.Attachments) {
		r.table.wakePod(c.pod) // the gates of the pod's other claims list its RDMA devices too
	}
	if record.Pod != c.record.Pod {
		c.gatesOpen = map[int]bool{} // the gates of devices without a network still admit the former pod
	}
	former := c.record
	c.record, c.unsaved = record, !saved || record.Pod != c.pod
	for _, at := range former.Attachments {
		if at.HasNetns(r.table.bootID) && !r.table.needsNetns(at.Sandbox) {
			r.closeNetns(at.Sandbox)
		}
	}
	if saved {
		c.neverSaved = false
	}
	r.table.notifyWaiters()
}

// drop removes c from the table. If left is not nil, left replaces c.
func (r *records) drop(c, left *claim) {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	c.removed = true
	delete(r.table.claims, c.uid())
	if left != nil {
		r.table.claims[c.uid()] = left
	}
	r.table.wakePod(c.pod)
	r.table.backOff.Forget(c.uid())
	r.reports.queue.Forget(c.uid())
	r.table.notifyWaiters()
}
