package cleanup

import (
	"context"
	"errors"
	"fmt"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
)

// Garbage is the result of CollectStale.
type Garbage struct {
	Collected int // stale attachments that were deleted
	Left      int // stale attachments with delegates, which only the runtime can delete
	Swept     int // leftover files that were removed
}

// CollectStale deletes the stale attachments of all networks, and then sweeps. It is for a long-running caller
// other than a runtime. If delegates is false, attachments with delegates are kept, because the caller cannot
// run delegates. CollectStale calls rest before each attachment. It stops early, without an error, when ctx
// ends. A CNI error, of type *types.Error, contains all failures.
func (c *Cleaner) CollectStale(ctx context.Context, delegates bool, rest func(context.Context)) (g Garbage, err error) {
	keys, err := c.Journal.All()
	errs := []error{err}
	for _, key := range keys {
		rest(ctx)
		if ctx.Err() != nil {
			break
		}
		e, err := c.Journal.Get(key)
		switch {
		case errors.As(err, new(*store.CorruptError)), errors.As(err, new(*journal.FormatError)): // the entry cannot be read, so it is kept
		case err != nil:
			errs = append(errs, fmt.Errorf("attachment %s: %w", key, err))
		case !c.Stale(e):
		case len(e.Delegates) > 0 && !delegates:
			g.Left++
		default:
			done, err := c.Collect(key, e, nil)
			errs = append(errs, err)
			if done {
				g.Collected++
			}
		}
	}
	errs = append(errs, c.Sweep(func() { g.Swept++ }))
	return g, failure.Translate(failure.Join(errs...))
}

// Collect deletes one attachment by its journal entry, and returns true, unless the entry has changed since the caller
// read it. judged is the entry that the caller read. If judged is nil, the entry is corrupt, and complete adds
// what the leases do not show. The lock on the entry prevents an ADD or DEL of the attachment meanwhile.
func (c *Cleaner) Collect(key journal.Key, judged *journal.Entry, complete func(*journal.Entry)) (done bool, err error) {
	e, corrupt, err := c.LockAnyway(key)
	defer e.Unlock()
	switch {
	case err != nil || e == nil: // DEL has removed it
	case corrupt != (judged == nil) || !corrupt && !e.Same(judged):
		c.Log.Info("not collected, because the attachment was added again", "attachment", key.String())
	default:
		if corrupt {
			complete(e)
		}
		r := c.Removal(e)
		if there, err := link.HasNetns(e.Netns); err != nil || !there || !e.OfBoot(c.BootID) || link.NetnsNamesProcess(e.Netns) {
			r.Netns = "" // the delegates must not get the path: it leads nowhere, or perhaps to another pod's namespace
		}
		done, err = true, r.Run()
	}
	if err != nil {
		return false, fmt.Errorf("attachment %s: %w", key, err)
	}
	return done, nil
}

// Sweep removes files that killed calls left and that no journal entry mentions: leases, records, caches and
// temporary files. It calls removed for each.
func (c *Cleaner) Sweep(removed func()) error {
	swept := func(dir string) func(string) {
		return func(name string) {
			c.Log.Info("removed a leftover file", "directory", dir, "name", name)
			removed()
		}
	}
	return errors.Join(
		c.Journal.Sweep(swept(c.Node.StateDir)),
		store.Open(c.Node.DeviceInfoDir).Sweep(swept(c.Node.DeviceInfoDir)),
		store.Open(c.Node.CDIDir).Sweep(swept(c.Node.CDIDir)))
}
