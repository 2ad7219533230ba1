package dra

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/state"
)

// claim is a claim on record, or what is left of one, and what events want of it. The
// agent's mutex guards all of it but orphans. Only the claim's worker gives it another record,
// which is then never changed: whoever has taken one may read it without the mutex.
type claim struct {
	ref    kubeletplugin.NamespacedObject // never changes
	record *state.Claim

	// What events want.
	version string    // of the claim in the API that they go by; "" = unknown
	pod     state.Pod // that the claim belongs to
	forget  bool      // it is unprepared
	blame   string    // why nothing is attached, for the status; "" = it says so already, or it is
	rewrite bool      // somebody has written over the metadata

	// What the worker has come to.
	fresh   bool   // the record was never written
	unsaved bool   // the disk has not got the record as it is
	gone    bool   // forgotten, by the agent too
	doing   action // the step under way; none = none
	of      string // and the sandbox that it is for
	sent    []resourceapi.AllocatedDeviceStatus

	// What keeps it from going on. A DEL that has failed has a back-off of its own, for others
	// must not make it fail more often.
	trouble retry
	late    map[int]retry // of what attachments owe, by their places in the record
	redo    time.Time     // when the DELs that were given up are run again

	// orphans are the interfaces for which plugins of an earlier agent may still run. The
	// worker's alone.
	orphans map[string]bool
}

// retry is when a step that has failed is taken again, and why it has; an error of nil is a
// device's that may be on its way back.
type retry struct {
	step  action
	err   error
	after time.Time
}

// known is a claim with that record.
func known(record *state.Claim) *claim {
	c := &claim{record: record, pod: record.Pod, orphans: map[string]bool{}, late: map[int]retry{}}
	c.ref.Namespace, c.ref.Name, c.ref.UID = record.Namespace, record.Name, record.UID
	for _, at := range record.Attachments {
		c.orphans[at.IfName] = at.Phase == state.Adding || at.Phase == state.Deleting
	}
	return c
}

// isFor reports whether the claim belongs to a pod.
func (c *claim) isFor(pod types.UID) bool { return c.pod.UID == pod }

// owes a DEL for the sandbox that somebody may wait for. Restoring its devices does not count.
func (c *claim) owes(sandbox string) bool {
	return slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool {
		return at.Sandbox == sandbox && at.Phase != state.Restoring
	})
}

// left is what remains of the claim once it is unprepared; nil = nothing.
func (c *claim) left() *claim {
	if len(c.record.Abandoned) == 0 {
		return nil
	}
	record := c.record.Clone()
	record.Pod, record.Attachments, record.StatusOwed = state.Pod{}, nil, false
	left := known(record)
	left.redo = c.redo
	return left
}

// stuck says why what is owed has not been done, though it was tried; nil = there is nothing.
// The mutex must be held.
func (c *claim) stuck() error {
	var errs []error
	for _, n := range slices.Sorted(maps.Keys(c.late)) {
		errs = append(errs, c.late[n].err)
	}
	return errors.Join(errs...)
}

// name of the claim, for people.
func (c *claim) name() string { return c.ref.Namespace + "/" + c.ref.Name }

// put writes a record and gives it to the claim.
func (a *Agent) put(c *claim, record *state.Claim, step string) error {
	a.mu.Lock()
	record.Pod = c.pod
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
	if !slices.Equal(withheld(c.record), withheld(record)) {
		a.node.Publish()
	}
	c.record, c.unsaved = record, !saved || record.Pod != c.pod
	if saved {
		c.fresh = false
	}
	a.announce()
}

// saveNow writes the record, or forgets a claim that was never written: the kubelet is
// told that it is not prepared.
func (a *Agent) saveNow(c *claim) error {
	name, record, fresh := "saved", c.record.Clone(), c.fresh
	if fresh {
		name = "prepared"
		a.describeBare(record)
	}
	err := a.put(c, record, name)
	switch {
	case err == nil && record.StatusOwed:
		a.reports.Add(c.ref.UID)
	case err != nil && fresh:
		a.mu.Lock()
		c.trouble.err = err
		a.mu.Unlock()
		a.drop(c, c.left())
	}
	return err
}

// forgetNow removes the record, or all of it but what was abandoned.
func (a *Agent) forgetNow(c *claim) error {
	if err := a.release(c); err != nil {
		return err
	}
	left, err := c.left(), error(nil)
	if left == nil {
		err = a.state.Remove(c.ref.UID)
	} else {
		err = a.state.Put(left.record)
	}
	if err != nil {
		return fmt.Errorf("claim %s: %w", c.ref, err)
	}
	a.did("forgotten")
	a.drop(c, left)
	return nil
}

// drop takes a claim out of the agent, but for what is left of it; nil = nothing.
func (a *Agent) drop(c, left *claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.gone = true
	delete(a.claims, c.ref.UID)
	if left != nil {
		a.claims[c.ref.UID] = left
	}
	a.backOff.Forget(c.ref.UID)
	a.reports.Forget(c.ref.UID)
	a.announce()
}

// claimsOf are the claims that belong to a pod, sorted by name. The mutex must be held.
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
		for _, at := range c.record.Attachments {
			census.Phases[string(at.Phase)]++
		}
		census.Phases[string(state.Abandoned)] += len(c.record.Abandoned)
		if c.record.StatusOwed {
			census.Status++
		}
	}
	return census
}

func recordOf(claim *resourceapi.ResourceClaim, pod state.Pod, networks []cniconfig.Network) *state.Claim {
	record := &state.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, Pod: pod, Shared: metav1.GetControllerOf(claim) == nil}
	for _, n := range networks {
		record.Attachments = append(record.Attachments, n.Attachment)
	}
	return record
}

// withheld are the devices in a record that no other claim may get.
func withheld(record *state.Claim) (devices []string) {
	for _, at := range slices.Concat(record.Attachments, record.Abandoned) {
		if at.Withheld() {
			devices = append(devices, at.Device)
		}
	}
	return devices
}

// Holders implements [devices.Claims].
func (a *Agent) Holders() (list []devices.Holder) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, c := range a.claims {
		for _, attachments := range [][]state.Attachment{c.record.Attachments, c.record.Abandoned} {
			for n := range attachments {
				list = append(list, devices.Holder{Claim: uid, Attachment: &attachments[n]})
			}
		}
	}
	return list
}

// OnRecord implements [devices.Claims].
func (a *Agent) OnRecord(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, unreadable := a.problems[uid]
	return unreadable || a.claims[uid] != nil
}

// PodIn implements [devices.Claims].
func (a *Agent) PodIn(netns string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, sb := range a.sandboxes {
		if sb.netns == netns {
			return sb.pod.Namespace + "/" + sb.pod.Name
		}
	}
	return ""
}
