package dra

import (
	"context"
	"slices"
	"time"

	"devinfo-cni.io/pkg/dra/state"
)

// keepCollecting ends records and leases that nobody will unprepare, until ctx ends: it reads claims
// now and with every sweep, and looks for leases every [Options.AbandonedEvery].
func (a *Agent) keepCollecting(ctx context.Context) {
	sweep, leases := time.NewTicker(a.Sweep), time.NewTicker(a.AbandonedEvery)
	defer sweep.Stop()
	defer leases.Stop()
	a.collectLeases()
	for ctx.Err() == nil {
		a.readIdle(ctx)
		select {
		case <-sweep.C:
		case <-leases.C:
			a.collectLeases()
		case <-ctx.Done():
		}
	}
}

// readIdle reads the claims that no sandbox has. A failure ends it until the next sweep.
func (a *Agent) readIdle(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	for _, c := range a.idle() {
		now, err := a.Read(limited, c.ref)
		if err != nil {
			if ctx.Err() == nil {
				a.Log.Error("cannot read a claim that no sandbox has", "claim", c.ref, "error", err)
			}
			return
		}
		a.reread(c, now)
	}
}

func (a *Agent) idle() (list []*claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.claims {
		if a.Read != nil && a.isIdle(c) {
			list = append(list, c)
		}
	}
	return list
}

// isIdle reports whether no sandbox runs with a claim, for all that is known. The mutex must be held.
func (a *Agent) isIdle(c *claim) bool {
	return a.synced && !c.record.Left() && a.sandboxOf(c.pod.UID) == nil &&
		!slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool { return a.runs(a.sandboxes[at.Sandbox]) })
}

func (a *Agent) collectLeases() {
	if err := a.node.Leases.Collect(); err != nil {
		a.Log.Error("cannot release leases of claims without a record", "error", err)
	}
}
