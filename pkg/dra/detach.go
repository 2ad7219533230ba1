package dra

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/pkg/dra/custody"
	"devinfo-cni.io/pkg/dra/state"
)

// delete detaches attachments, all at the same time. It may be repeated until it
// succeeds: for a plugin, DEL of what is gone is no error.
func (a *Agent) delete(c *claim, s step) {
	record := c.record.Clone()
	for _, n := range s.at {
		record.Attachments[n].Phase = state.Deleting
	}
	if s.at != nil {
		// Even without a record, what is on disk owes a DEL. One that is on a full disk
		// must be possible.
		a.putAnyway(c, record, "deleting")
	}
	results := make(chan result)
	run := func(n int, at state.Attachment) {
		orphaned := c.orphans[at.IfName]
		delete(c.orphans, at.IfName)
		go func() { results <- a.runDel(c, n, at, orphaned) }()
	}
	for _, n := range s.at {
		run(n, record.Attachments[n])
	}
	for _, n := range s.abandoned {
		run(n, record.Abandoned[n])
	}
	var errs []error
	var done []int // of s.abandoned
	for range len(s.at) + len(s.abandoned) {
		r := <-results
		if r.err == nil && s.at == nil {
			done = append(done, r.n)
		}
		errs = append(errs, a.deleted(c, r, s.at != nil))
	}
	if done != nil {
		a.putAnyway(c, withoutAbandoned(c.record, done), "deleted")
	}
	a.pause(c, s.at == nil, errors.Join(errs...))
}

// runDel closes the gate and runs DEL as ADD was run.
func (a *Agent) runDel(c *claim, n int, at state.Attachment, orphaned bool) result {
	key := key(c.ref.UID, &at)
	if orphaned {
		a.cni.await(key)
	}
	if at.Phase == state.Abandoned {
		if err := a.notOthers(c, &at); err != nil {
			return result{n, at, err}
		}
	}
	if at.Phase == state.Deleting {
		if err := a.closeGate(c, &at); err != nil {
			return result{n, at, err}
		}
	}
	netns, gone := at.Netns, ""
	switch {
	case a.isGone(at.Netns):
		netns, gone = "", at.Netns
	case at.BootID != a.BootID: // it is another one by now
		netns = ""
	}
	began := time.Now()
	err := a.cni.del(key, &at, netns, gone)
	a.did("exec DEL")
	a.executed("DEL", began, err)
	if err == nil {
		err = errors.Join(a.removeInfo(&at), a.cni.forget(key))
	}
	if err == nil && at.Phase == state.Abandoned {
		err = a.giveBack(c, &at)
	}
	if err == nil && (at.Phase == state.Abandoned || at.Former == nil) { // else restore does
		err = a.letGo(c, &at)
	}
	return result{n, at, err}
}

// deleted puts the result of a DEL on record.
func (a *Agent) deleted(c *claim, r result, current bool) error {
	record := c.record.Clone()
	list := record.Abandoned
	if current {
		list = record.Attachments
	}
	at := &list[r.n]
	if r.err == nil {
		if current && at.Former != nil {
			at.Phase, at.Tries, at.DelError = state.Restoring, 0, ""
			a.putAnyway(c, record, "deleted")
		} else if current {
			at.Reset(at.Error)
			a.putAnyway(c, record, "deleted")
		}
		return nil
	}
	at.Tries++
	at.DelError = r.err.Error()
	a.putAnyway(c, record, "not deleted")
	err := fmt.Errorf("claim %s, request %s: %w", c.ref, at.Request, r.err)
	a.Log.Error("pod is not detached yet", "pod", c.record.Pod, "sandbox", at.Sandbox, "tries", at.Tries, "error", err)
	return err
}

// clear forgets what was abandoned, as an administrator wants it, without a DEL.
func (a *Agent) clear(c *claim, which []int) error {
	a.Log.Warn("an administrator has cleared what was given up", "claim", c.ref)
	for _, n := range which {
		at := &c.record.Abandoned[n]
		err := errors.Join(a.removeInfo(at), a.letGo(c, at))
		again := func(now state.Attachment) bool { return now.Owes() && now.IfName == at.IfName }
		if !slices.ContainsFunc(c.record.Attachments, again) { // whose libcni's directory would be
			err = errors.Join(err, a.cni.forget(key(c.ref.UID, at)))
		}
		if err != nil {
			return fmt.Errorf("claim %s: clear: %w", c.ref, err)
		}
	}
	if err := a.put(c, withoutAbandoned(c.record, which), "cleared"); err != nil {
		return err
	}
	return a.state.Clear(c.ref.UID)
}

// withoutAbandoned is a copy of the record in which some of what was abandoned is forgotten.
func withoutAbandoned(record *state.Claim, which []int) *state.Claim {
	record = record.Clone()
	slices.Sort(which)
	for _, n := range slices.Backward(which) {
		record.Abandoned = slices.Delete(record.Abandoned, n, n+1)
	}
	return record
}

// pause keeps a claim from repeating a DEL that has just failed.
func (a *Agent) pause(c *claim, abandoned bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case abandoned:
		c.spareDel = time.Now().Add(a.AbandonedEvery)
	case err == nil:
		c.stuck, c.delAfter = nil, time.Time{}
	default:
		tries := 0
		for _, at := range c.record.Attachments {
			tries = max(tries, at.Tries)
		}
		pause := a.pauseAfter(tries, a.DelTries)
		c.delAfter = time.Now().Add(pause)
		c.stuck = fmt.Errorf("%w; DEL is tried again in %v; once the network namespace is gone and DEL has failed %d times (now %d) it is given up",
			err, pause.Round(time.Second), a.DelTries, tries)
	}
	a.announce()
}

// pauseAfter is how long to wait after the n-th failure: doubled each time, so that as many
// tries as there may be take DelPatience.
func (a *Agent) pauseAfter(n, tries int) time.Duration {
	n = max(1, min(n, tries-1))
	first := float64(a.DelPatience) / max(1, math.Exp2(float64(tries-1))-1)
	return time.Duration(first * math.Exp2(float64(n-1)))
}

// abandon takes what cannot be deleted out of the way of the claim: it stays on record,
// and DEL is tried at the agent's start and every [Options.AbandonedEvery].
func (a *Agent) abandon(c *claim, which []int) error {
	record := c.record.Clone()
	for _, n := range which {
		at := &record.Attachments[n]
		given := *at
		given.Phase, given.GivenUp = state.Abandoned, metav1.NewTime(time.Now().UTC().Truncate(time.Second))
		if a.isLost(at) { // what comes back in its place is another device, and nobody's
			given.Node, given.Former = nil, nil
		}
		record.Abandoned = append(record.Abandoned, given)
		a.mourn(c, record.Pod, at)
		at.Reset("")
	}
	if err := a.put(c, record, "abandoned"); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c.stuck, c.delAfter, c.restoreAfter, c.spareDel = nil, time.Time{}, time.Time{}, time.Now().Add(a.AbandonedEvery)
	return nil
}

// isLost says whether the node has lost the device of an attachment, or has another one
// in its place.
func (a *Agent) isLost(at *state.Attachment) bool {
	if at.Node == nil || a.Custody == nil {
		return false
	}
	now, err := a.Custody.Look(at.Node)
	return errors.Is(err, custody.ErrGone) || at.Former != nil && at.BootID == a.BootID && at.Former.IsReplaced(now)
}

// mourn tells people what is given up.
func (a *Agent) mourn(c *claim, pod state.Pod, at *state.Attachment) {
	what, reason := fmt.Sprintf("DEL of network %s", at.Network), NoticeAbandoned
	if at.Phase == state.Restoring {
		what, reason = fmt.Sprintf("restoring device %s", at.Device), NoticeDevice
	}
	a.Log.Error("given up: what is left of the network stays until an administrator looks into it", "what", what,
		"claim", c.ref, "network", at.Network, "device", at.Device, "sandbox", at.Sandbox, "ifName", at.IfName, "error", at.DelError)
	a.tell(pod, reason, fmt.Sprintf("claim %s, request %s: %s has failed %d times and is given up: %s", c.name(), at.Request, what, at.Tries, at.DelError))
}

// isTaken says whether the device of an abandoned attachment is another record's by now,
// or is about to be: its DEL would take the device away from that. The mutex must be held.
func (a *Agent) isTaken(at *state.Attachment) bool {
	for _, other := range a.claims {
		for n := range other.record.Attachments {
			held := &other.record.Attachments[n]
			if (held.Owes() || held.Bare() && a.isHeld(other) || other.doing == doAdd) && sameDevice(held, at) {
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

// withheldOf are a claim's exclusive devices that nobody else may get: their last DEL has
// failed, or they are not what they were, whether or not that was given up since. That is
// before the claim is free.
func withheldOf(record *state.Claim) (devices []string) {
	for _, at := range slices.Concat(record.Attachments, record.Abandoned) {
		lost := at.Node == nil && isOwn(at.Device) // see abandon
		if at.Tries > 0 && at.DelError != "" && isExclusive(&at) && !lost {
			devices = append(devices, at.Device)
		}
	}
	return devices
}

// withheld are those of all claims.
func (a *Agent) withheld() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	devices := map[string]bool{}
	for _, c := range a.claims {
		for _, device := range withheldOf(c.record) {
			devices[device] = true
		}
	}
	return devices
}

// offerSoon has the node's devices published again.
func (a *Agent) offerSoon() {
	select {
	case a.toOffer <- struct{}{}:
	default: // they will be, already
	}
}

// removeInfo removes the device-info file, which the plugin that wrote it may have left.
func (a *Agent) removeInfo(at *state.Attachment) error {
	name, err := a.infos.Name(at.InfoFile)
	if err != nil {
		return err
	}
	return a.infos.Remove(name)
}
