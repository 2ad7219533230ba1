package claim

import (
	"fmt"
	"slices"

	"devinfo-cni.io/pkg/dra/state"
)

// records writes the records of claims to disk.
type records struct {
	Options
	table   *table
	files   *state.Store
	reports *reports
}

// load reads what an earlier process has left.
func (r *records) load() error {
	records, problems, err := r.files.All()
	if err != nil {
		return err
	}
	for _, record := range records {
		r.table.claims[record.UID] = known(record)
		if record.StatusOwed {
			r.reports.queue.Add(record.UID)
		}
	}
	for _, p := range problems {
		r.table.problems[p.UID] = p
		r.Log.Error("unreadable claim record: its networks and devices stay attached until an administrator cleans up",
			"claimUID", p.UID, "error", p.Err, "setAside", p.Aside)
	}
	return nil
}

// put writes a record and gives it to the claim.
func (r *records) put(c *claim, record *state.Claim, step string) error {
	r.table.do(func() { record.Pod = c.pod })
	if err := r.files.Put(record); err != nil {
		return fmt.Errorf("record claim %s: %w", c.ref, err)
	}
	r.Step(step)
	r.adopt(c, record, true)
	return nil
}

// putAnyway is like put, for a step that has been done. If writing fails, the record is saved later. If the agent
// dies before that, the step is done again.
func (r *records) putAnyway(c *claim, record *state.Claim, step string) {
	if err := r.put(c, record, step); err != nil {
		r.Log.Warn("not on disk yet", "error", err)
		r.adopt(c, record, false)
	}
}

// adopt gives the claim a record, which is on disk if saved.
func (r *records) adopt(c *claim, record *state.Claim, saved bool) {
	if !slices.Equal(withheld(c.record), withheld(record)) {
		defer r.Node.Publish()
	}
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	c.record, c.unsaved = record, !saved || record.Pod != c.pod
	if saved {
		c.fresh = false
	}
	r.table.announce()
}

// drop replaces a claim by what is left of it; nil = nothing.
func (r *records) drop(c, left *claim) {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	c.gone = true
	delete(r.table.claims, c.ref.UID)
	if left != nil {
		r.table.claims[c.ref.UID] = left
	}
	r.table.backOff.Forget(c.ref.UID)
	r.reports.queue.Forget(c.ref.UID)
	r.table.announce()
}
