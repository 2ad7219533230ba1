package dra

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/state"
)

// abandon gives up what cannot be deleted: the claim ends, or goes on with another sandbox, and DEL
// is tried at the agent's start and every [Options.AbandonedEvery].
func (a *Agent) abandon(c *claim, which []int) error {
	record := c.record.Clone()
	for _, n := range which {
		given := record.Attachments[n]
		given.Phase, given.GivenUp = state.Abandoned, metav1.NewTime(time.Now().UTC().Truncate(time.Second))
		if now := a.node.State(&given); now == devices.Gone || now == devices.Replaced { // what comes back in its place is another device, and nobody's
			given.Lost, given.Note = true, nil
		}
		record.Abandoned = append(record.Abandoned, given)
		record.Attachments[n].Reset("")
	}
	former := c.record
	if err := a.put(c, record, "abandoned"); err != nil {
		return err
	}
	for _, n := range which {
		a.mourn(c, &former.Attachments[n])
		a.goOn(c, n)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); !now.Before(c.redo) {
		c.redo = now.Add(a.AbandonedEvery)
	}
	return nil
}

// mourn tells people what is given up.
func (a *Agent) mourn(c *claim, at *state.Attachment) {
	what, reason := fmt.Sprintf("DEL of network %s", at.Network), NoticeAbandoned
	if at.Phase == state.Restoring {
		what, reason = fmt.Sprintf("restoring device %s", at.Device), NoticeDevice
	}
	a.Log.Error("given up: what is left of the network stays until an administrator looks into it", "what", what,
		"claim", c.ref, "network", at.Network, "device", at.Device, "sandbox", at.Sandbox, "ifName", at.IfName, "error", at.DelError)
	a.tell(podOf(at), reason, fmt.Sprintf("claim %s, request %s: %s has failed %d times and is given up: %s", c.name(), at.Request, what, at.Tries, at.DelError))
}

// deleteAgain tries the DELs of what was abandoned once more, one after the other: two of them may be of
// one device.
func (a *Agent) deleteAgain(c *claim, which []int) {
	record := c.record.Clone()
	for _, n := range slices.Backward(which) {
		at := record.Abandoned[n]
		err := a.node.Leases.CheckFree(record, &at)
		if err == nil {
			err = a.detach(record.UID, &at)
		}
		if err == nil {
			err = a.node.GiveBack(record, &at)
		}
		if err == nil {
			err = a.settle(record, n)
		}
		if err != nil {
			at := &record.Abandoned[n]
			at.Tries, at.DelError = at.Tries+1, err.Error()
			a.Log.Error("what was given up is not detached yet", "claim", c.ref, "sandbox", at.Sandbox, "tries", at.Tries, "error", err)
		}
	}
	a.mu.Lock()
	c.redo = time.Now().Add(a.AbandonedEvery)
	a.mu.Unlock()
	former := c.record
	a.putAnyway(c, record, "deleted again")
	a.unmark(former, record)
}

// settle takes an abandoned attachment, which owes nothing any more, out of a record.
func (a *Agent) settle(record *state.Claim, n int) error {
	at := record.Abandoned[n]
	record.Abandoned = slices.Delete(record.Abandoned, n, n+1)
	err := a.letGo(record, &at)
	if err != nil {
		record.Abandoned = slices.Insert(record.Abandoned, n, at)
	}
	return err
}

// clear forgets what was abandoned, as an administrator wants it, without a DEL.
func (a *Agent) clear(c *claim, which []int) error {
	record := c.record.Clone()
	for _, n := range slices.Backward(which) {
		at := record.Abandoned[n]
		a.Log.Warn("an administrator has cleared what was given up", "claim", c.ref, "sandbox", at.Sandbox)
		if err := errors.Join(removeInfo(&at), a.cni.forget(key(c.ref.UID, &at)), a.settle(record, n)); err != nil {
			return fmt.Errorf("claim %s: clear: %w", c.ref, err)
		}
	}
	former := c.record
	if err := a.put(c, record, "cleared"); err != nil {
		return err
	}
	a.unmark(former, record)
	return nil
}

// unmark removes what an administrator has left to have attachments cleared that a record has no more.
func (a *Agent) unmark(former, record *state.Claim) {
	for _, at := range former.Abandoned {
		if !slices.ContainsFunc(record.Abandoned, func(other state.Attachment) bool { return other.Sandbox == at.Sandbox && other.IfName == at.IfName }) {
			if err := a.state.Cleared(record.UID, &at); err != nil {
				a.Log.Warn("the mark of what was cleared stays", "claim", record.Name, "error", err)
			}
		}
	}
}

// isTaken says whether the device of an abandoned attachment is another attachment's by now, or is
// about to be: its DEL would take the device away from that. Nor do the DELs of two that were
// abandoned meet, of which each restores the device. The mutex must be held.
func (a *Agent) isTaken(c *claim, at *state.Attachment) bool {
	for _, other := range a.claims {
		busy := other.doing == doAdd || other.doing == doOpen
		for n := range other.record.Attachments {
			if held := &other.record.Attachments[n]; sameDevice(held, at) && (held.Owes() || busy) {
				return true
			}
		}
		for n := range other.record.Abandoned {
			if other != c && other.doing == doAgain && sameDevice(&other.record.Abandoned[n], at) {
				return true
			}
		}
	}
	return false
}

// isGivenBare says whether the containers of another claim have the device of an abandoned attachment,
// without a network of ours.
func (a *Agent) isGivenBare(at *state.Attachment) bool {
	var records []*state.Claim
	a.mu.Lock()
	for _, other := range a.claims {
		if slices.ContainsFunc(other.record.Attachments, func(held state.Attachment) bool { return held.Bare() && sameDevice(&held, at) }) {
			records = append(records, other.record)
		}
	}
	a.mu.Unlock()
	return slices.ContainsFunc(records, a.node.Leases.IsHeld)
}
