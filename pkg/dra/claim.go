package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/state"
)

// claim is a prepared claim in memory. Who holds turn may read and change record; all
// else is guarded by the agent's mutex.
type claim struct {
	ref     kubeletplugin.NamespacedObject // never changes
	turn    chan struct{}                  // holds one token while nobody works on the claim
	record  *state.Claim
	fresh   bool // record was never written
	unsaved bool // record could not be written as it is now
	gone    bool // unprepared while others waited for their turn
	// orphans are the interfaces for which plugins of an earlier agent may still run;
	// as record, for the holder of the turn.
	orphans map[string]bool

	pod     types.UID // record.Pod.UID
	ifNames []string  // the record's
	phases  []state.Phase
	owed    bool     // record.StatusOwed
	attempt *attempt // to attach it, as it runs
}

// known is a claim whose record is on disk.
func (a *Agent) known(record *state.Claim) *claim {
	c := &claim{turn: make(chan struct{}, 1), record: record}
	c.ref.Namespace, c.ref.Name, c.ref.UID = record.Namespace, record.Name, record.UID
	c.turn <- struct{}{}
	c.orphans = map[string]bool{}
	for _, at := range record.Attachments {
		c.orphans[at.IfName] = at.Phase == state.Adding || at.Phase == state.Deleting
	}
	c.note()
	return c
}

// note brings up to date what others than the holder of the turn may read.
func (c *claim) note() {
	c.pod, c.owed = c.record.Pod.UID, c.record.StatusOwed
	c.ifNames, c.phases = nil, nil
	for _, at := range c.record.Attachments {
		c.ifNames = append(c.ifNames, at.IfName)
		c.phases = append(c.phases, at.Phase)
	}
}

// take waits for the turn of each claim, in the order of their UIDs so that two callers
// never wait for each other. The error is that of ctx; then none is held.
func take(ctx context.Context, claims ...*claim) error {
	order := slices.SortedFunc(slices.Values(claims), func(c, d *claim) int { return cmp.Compare(c.ref.UID, d.ref.UID) })
	for n, c := range order {
		select {
		case <-c.turn:
		case <-ctx.Done():
			give(order[:n]...)
			return fmt.Errorf("claim %s: other work on it has not ended: %w", c.ref, context.Cause(ctx))
		}
	}
	return nil
}

// tryTake takes the turn if it can be had at once.
func (c *claim) tryTake() bool {
	select {
	case <-c.turn:
		return true
	default:
		return false
	}
}

func give(claims ...*claim) {
	for _, c := range claims {
		c.turn <- struct{}{}
	}
}

// save writes the record. In memory it is what it is even if that fails: see mend.
func (a *Agent) save(c *claim, step string) error {
	err := a.state.Put(c.record)
	a.mu.Lock()
	c.unsaved = err != nil
	c.note()
	a.mu.Unlock()
	if err != nil {
		return fmt.Errorf("record claim %s: %w", c.ref, err)
	}
	a.step(step)
	return nil
}

// claimsOf are the claims of a pod, sorted by name: the order in which they are attached.
func (a *Agent) claimsOf(pod types.UID) []*claim {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*claim
	for _, c := range a.claims {
		if c.pod == pod {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(c, d *claim) int {
		return cmp.Or(cmp.Compare(c.ref.Name, d.ref.Name), cmp.Compare(c.ref.UID, d.ref.UID))
	})
	return list
}

// Census counts the attachments by phase, and the claims whose status is owed.
func (a *Agent) Census() Census {
	a.mu.Lock()
	defer a.mu.Unlock()
	census := Census{Phases: map[string]int{}}
	for _, phase := range []state.Phase{state.Prepared, state.Adding, state.Added, state.Deleting} {
		census.Phases[string(phase)] = 0
	}
	for _, c := range a.claims {
		for _, phase := range c.phases {
			census.Phases[string(phase)]++
		}
		if c.owed {
			census.Status++
		}
	}
	return census
}

// begin runs f in the background, unless the agent has ended.
func (a *Agent) begin(f func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended {
		a.work.Go(f)
	}
	return !a.ended
}

// outlast runs f to its end, whatever becomes of ctx. It returns f's error, or, if ctx
// ends first, that of ctx.
func (a *Agent) outlast(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	if !a.begin(func() { done <- f() }) {
		return errEnded
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("goes on in the background: %w", context.Cause(ctx))
	}
}

var errEnded = errors.New("the agent has ended: the next one does it")
