package dra

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/state"
)

// claim is a claim on record, and what events want of it. The agent's mutex guards all
// of it but orphans. Only the claim's worker gives it another record, which is then never
// changed: whoever has taken one may read it without the mutex.
type claim struct {
	ref    kubeletplugin.NamespacedObject // never changes
	record *state.Claim

	// What events want.
	pods    []state.Pod  // that the claim is reserved for
	next    *state.Claim // of a new allocation; nil = none
	forget  bool         // it is unprepared
	blame   string       // why nothing is attached, for the status; "" = it says so already, or it is
	rewrite bool         // somebody has written over the metadata

	// What the worker has come to.
	fresh   bool   // the record was never written
	unsaved bool   // the disk has not got the record as it is
	gone    bool   // forgotten, by the agent too
	doing   action // the step under way; none = none
	of      string // and the sandbox that it is for
	sent    []resourceapi.AllocatedDeviceStatus

	// What keeps it from going on. A failed DEL has a back-off of its own, for others must
	// not make it fail more often.
	stuck        error  // the last DEL's
	trouble      error  // any other step's
	failed       action // and which that was
	delAfter     time.Time
	again        time.Time // after any other failure
	spareDel     time.Time // when DELs of what is abandoned are due
	restoreAfter time.Time // when devices are looked at again

	// orphans are the interfaces for which plugins of an earlier agent may still run. The
	// worker's alone.
	orphans map[string]bool
}

// known is a claim with that record.
func known(record *state.Claim) *claim {
	c := &claim{record: record, pods: record.Consumers(), orphans: map[string]bool{}}
	c.ref.Namespace, c.ref.Name, c.ref.UID = record.Namespace, record.Name, record.UID
	for _, at := range record.Attachments {
		c.orphans[at.IfName] = at.Phase == state.Adding || at.Phase == state.Deleting
	}
	return c
}

// is for the pod, now or once its turn comes.
func (c *claim) isFor(pod types.UID) bool {
	return c.record.Pod.UID == pod || slices.ContainsFunc(c.pods, func(p state.Pod) bool { return p.UID == pod })
}

// owes a DEL for the sandbox. Restoring its devices does not count.
func (c *claim) owes(sandbox string) bool {
	return slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool {
		return at.Sandbox == sandbox && at.Phase != state.Restoring
	})
}

// name of the claim, for people.
func (c *claim) name() string { return c.ref.Namespace + "/" + c.ref.Name }

// put writes a record and gives it to the claim.
func (a *Agent) put(c *claim, record *state.Claim, step string) error {
	a.mu.Lock()
	record.Pods = c.pods
	a.mu.Unlock()
	if err := a.state.Put(record); err != nil {
		return fmt.Errorf("record claim %s: %w", c.ref, err)
	}
	a.did(step)
	a.adopt(c, record, true)
	return nil
}

// putAnyway is put for what has happened: if the disk does not take it, it is saved later,
// and done again should the agent die before.
func (a *Agent) putAnyway(c *claim, record *state.Claim, step string) {
	if err := a.put(c, record, step); err != nil {
		a.Log.Warn("not on disk yet", "error", err)
		a.adopt(c, record, false)
	}
}

// adopt gives the claim a record.
func (a *Agent) adopt(c *claim, record *state.Claim, saved bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(withheldOf(c.record), withheldOf(record)) {
		a.offerSoon()
	}
	c.record, c.unsaved = record, !saved || !slices.Equal(record.Pods, c.pods)
	if saved {
		c.fresh = false
	}
	a.announce()
}

// saveNow writes the record, or forgets a claim that was never written: the kubelet is
// told that it is not prepared.
func (a *Agent) saveNow(c *claim) error {
	name := "saved"
	if c.fresh {
		name = "prepared"
	}
	err := a.put(c, c.record.Clone(), name)
	if err != nil && c.fresh {
		a.mu.Lock()
		c.trouble = err
		a.mu.Unlock()
		a.drop(c)
	}
	return err
}

// swap begins again with another allocation of the claim.
func (a *Agent) swap(c *claim) error {
	a.mu.Lock()
	next := c.next
	a.mu.Unlock()
	if err := a.closeBare(c); err != nil {
		return err
	}
	record := next.Clone()
	record.Abandoned = c.record.Abandoned
	if err := a.put(c, record, "prepared"); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.next == next {
		c.next = nil
	}
	return nil
}

// forgetNow removes the record, or what of it nobody needs: DELs that were given up stay.
func (a *Agent) forgetNow(c *claim) error {
	a.reports.Forget(c.ref.UID)
	if err := a.closeBare(c); err != nil {
		return err
	}
	if len(c.record.Abandoned) > 0 {
		record := c.record.Clone()
		record.Attachments, record.StatusOwed = nil, false
		a.mu.Lock()
		if c.forget {
			c.pods = nil
		}
		a.mu.Unlock()
		err := a.put(c, record, "forgotten")
		a.mu.Lock()
		c.forget = c.forget && err != nil
		a.mu.Unlock()
		return err
	}
	if err := a.state.Remove(c.ref.UID); err != nil {
		return fmt.Errorf("claim %s: %w", c.ref, err)
	}
	a.did("forgotten")
	a.drop(c)
	return nil
}

// drop takes a claim out of the agent.
func (a *Agent) drop(c *claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.gone = true
	delete(a.claims, c.ref.UID)
	a.backOff.Forget(c.ref.UID)
	a.announce()
}

// claimsOf are the claims that are reserved for a pod, sorted by name. The mutex must be held.
func (a *Agent) claimsOf(pod types.UID) []*claim {
	var list []*claim
	for _, c := range a.claims {
		if c.isFor(pod) {
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
	for _, phase := range state.Phases() {
		census.Phases[string(phase)] = 0
	}
	for _, c := range a.claims {
		for _, at := range slices.Concat(c.record.Attachments, c.record.Abandoned) {
			census.Phases[string(at.Phase)]++
		}
		if c.record.StatusOwed {
			census.Status++
		}
	}
	return census
}
