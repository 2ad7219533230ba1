package dra

import (
	"errors"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/pkg/dra/custody"
	"devinfo-cni.io/pkg/dra/state"
)

// delete detaches attachments, all at the same time. It may be repeated until it
// succeeds: for a plugin, DEL of what is gone is no error.
func (a *Agent) delete(c *claim, which []int) {
	record := c.record
	if record.Abandoned() == nil {
		record = record.Clone()
		for _, n := range which {
			record.Attachments[n].Phase = state.Deleting
		}
		// Even without a record, what is on disk owes a DEL. One that is on a full disk
		// must be possible.
		a.putAnyway(c, record, "deleting")
	}
	results := make(chan result)
	for _, n := range which {
		at := record.Attachments[n]
		orphaned := c.orphans[at.IfName]
		delete(c.orphans, at.IfName)
		go func() { results <- a.runDel(c, record, n, at, orphaned) }()
	}
	for range which {
		a.deleted(c, <-results)
	}
}

// runDel closes the gate and runs DEL as ADD was run.
func (a *Agent) runDel(c *claim, record *state.Claim, n int, at state.Attachment, orphaned bool) result {
	key := key(record.UID, &at)
	if orphaned {
		a.cni.await(key)
	}
	if at.Phase == state.Abandoned {
		if err := a.notOthers(record, &at); err != nil {
			return result{n, at, err}
		}
	}
	if at.Phase == state.Deleting {
		if err := a.closeGate(record, &at); err != nil {
			return result{n, at, err}
		}
	}
	netns, gone := at.Netns, ""
	switch {
	case at.BootID != a.BootID: // at its path is another by now, and the start has made all devices anew
		netns = ""
	case a.isGone(at.Netns):
		netns, gone = "", at.Netns
	}
	began := time.Now()
	err := a.cni.del(key, &at, netns, gone)
	a.did("exec DEL")
	a.metrics.exec("DEL", time.Since(began), err)
	if err == nil {
		err = errors.Join(removeInfo(&at), a.cni.forget(key))
	}
	if err == nil && at.Phase == state.Abandoned {
		err = a.giveBack(record, &at)
	}
	if err == nil && (at.Phase == state.Abandoned || at.Former == nil) { // else restore does
		err = a.letGo(c, &at)
	}
	return result{n, at, err}
}

// deleted puts the result of a DEL on record.
func (a *Agent) deleted(c *claim, r result) {
	record := c.record.Clone()
	at := &record.Attachments[r.n]
	switch {
	case r.err != nil:
		at.Tries++
		at.DelError = r.err.Error()
		err := fmt.Errorf("claim %s, request %s: %w", c.ref, at.Request, r.err)
		a.Log.Error("pod is not detached yet", "pod", podOf(at), "sandbox", at.Sandbox, "tries", at.Tries, "error", err)
		a.pause(c, r.n, at, err)
		a.putAnyway(c, record, "not deleted")
		return
	case at.Phase == state.Abandoned:
		a.finish(c)
		return
	case at.Former != nil:
		at.Phase, at.Tries, at.DelError = state.Restoring, 0, ""
	default:
		at.Reset(at.Error)
	}
	a.goOn(c, r.n)
	a.putAnyway(c, record, "deleted")
}

// clear forgets what was abandoned, as an administrator wants it, without a DEL.
func (a *Agent) clear(c *claim) error {
	a.Log.Warn("an administrator has cleared what was given up", "claim", c.ref)
	at := c.record.Abandoned()
	if err := errors.Join(removeInfo(at), a.letGo(c, at), a.cni.forget(key(c.ref.UID, at))); err != nil {
		return fmt.Errorf("claim %s: clear: %w", c.ref, err)
	}
	a.finish(c)
	return nil
}

// finish has the record of what was abandoned forgotten: it owes nothing any more.
func (a *Agent) finish(c *claim) {
	record := c.record.Clone()
	record.Attachments = nil
	a.adopt(c, record, true)
}

// pause keeps an attachment from repeating at once what has failed: DEL, or restoring its device.
// An error of nil is of a device that may be on its way back.
func (a *Agent) pause(c *claim, n int, at *state.Attachment, err error) {
	what, limit := "DEL", a.DelTries
	if at.Phase == state.Restoring {
		what, limit = "restoring it", restoreTries
	}
	pause := a.pauseAfter(at.Tries, limit)
	if at.Phase == state.Abandoned {
		pause = a.AbandonedEvery
	}
	if err != nil {
		err = fmt.Errorf("%w; %s is tried again in %v; once the network namespace is gone and it has failed %d times (now %d) it is given up",
			err, what, pause.Round(time.Second), limit, at.Tries)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c.late[n] = retry{err: err, after: time.Now().Add(pause)}
}

// goOn ends that.
func (a *Agent) goOn(c *claim, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(c.late, n)
}

// pauseAfter is how long to wait after the n-th failure: doubled each time, so that as many
// tries as there may be take DelPatience.
func (a *Agent) pauseAfter(n, tries int) time.Duration {
	n = max(1, min(n, tries-1))
	first := float64(a.DelPatience) / max(1, math.Exp2(float64(tries-1))-1)
	return time.Duration(first * math.Exp2(float64(n-1)))
}

// abandon takes what cannot be deleted out of the way of the claim: it has a record of its own,
// and DEL is tried at the agent's start and every [Options.AbandonedEvery].
func (a *Agent) abandon(c *claim, which []int) error {
	record := c.record.Clone()
	for _, n := range which {
		at := &record.Attachments[n]
		given := *at
		given.Phase, given.GivenUp = state.Abandoned, metav1.NewTime(time.Now().UTC().Truncate(time.Second))
		if now := a.stateOf(at); now == custody.Gone || now == custody.Replaced { // what comes back in its place is another device, and nobody's
			given.Lost, given.Former = true, nil
		}
		left := known(&state.Claim{Namespace: c.ref.Namespace, Name: c.ref.Name, UID: c.ref.UID, Attachments: []state.Attachment{given}})
		left.late[0] = retry{after: time.Now().Add(a.AbandonedEvery)}
		if err := a.state.Put(left.record); err != nil {
			return fmt.Errorf("record claim %s: %w", c.ref, err)
		}
		a.did("apart")
		a.mu.Lock()
		if a.claims[left.key] == nil { // before the claim is without it: it is always somebody's
			a.claims[left.key] = left
		}
		a.mu.Unlock()
		a.mourn(c, at)
		at.Reset("")
	}
	if err := a.put(c, record, "abandoned"); err != nil {
		return err
	}
	for _, n := range which {
		a.goOn(c, n)
	}
	return nil
}

// stateOf says what has become of the device of an attachment; "" = that is not known.
func (a *Agent) stateOf(at *state.Attachment) custody.State {
	if at == nil || at.Former == nil || a.Custody == nil {
		return ""
	}
	former := *at.Former
	if at.BootID != a.BootID { // each start makes all devices anew
		former.Inode = 0
	}
	now, err := a.Custody.State(former)
	if err != nil {
		a.Log.Warn("what has become of a device is not known", "device", at.Device, "error", err)
	}
	return now
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

// isTaken says whether the device of an abandoned attachment is another record's by now, or is
// about to be: its DEL would take the device away from that. Nor do the DELs of two that were
// abandoned meet, of which each restores the device. The mutex must be held.
func (a *Agent) isTaken(c *claim) bool {
	at := c.record.Abandoned()
	for _, other := range a.claims {
		for n := range other.record.Attachments {
			held := &other.record.Attachments[n]
			if other == c || !sameDevice(held, at) {
				continue
			}
			switch {
			case held.Phase == state.Abandoned:
				if other.doing == doDel {
					return true
				}
			case held.Owes(), held.Bare() && a.isHeld(other), other.doing == doAdd, other.doing == doOpen:
				return true
			}
		}
	}
	return false
}

// sameDevice says whether two attachments are of one exclusive device: as the scheduler
// has allocated it, or as the device-info files say.
func sameDevice(a, b *state.Attachment) bool {
	if isExclusive(a) && isExclusive(b) && a.Pool == b.Pool && a.Device == b.Device {
		return true
	}
	one, other := a.PCI(), b.PCI()
	return one != "" && one == other
}

// isExclusive says whether the scheduler allocates the device to one claim at a time.
func isExclusive(at *state.Attachment) bool { return at.ShareID == nil }

// removeInfo removes the device-info file, which the plugin that wrote it may have left.
func removeInfo(at *state.Attachment) error {
	dir, name := infoOf(at)
	return dir.Remove(name)
}
