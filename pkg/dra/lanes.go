package dra

import (
	"time"

	"devinfo-cni.io/pkg/dra/state"
)

// A lane keeps slow work of one kind from holding up another.
type lane int

const (
	fast    lane = iota // what a handler waits for, and what takes no time: any number at once
	lateAdd             // ADDs that only containers wait for
	del                 // the first DEL of an attachment
	delAgain
	lanes
)

// laneOf says where a step belongs. A sandbox that waits for its ADD waits for no DEL but
// its own claim's.
func laneOf(record *state.Claim, s step, sb *sandbox) lane {
	if sb != nil && sb.waited {
		return fast
	}
	switch s.do {
	case doAdd:
		return lateAdd
	case doDel:
		for _, n := range s.at {
			if record.Attachments[n].Tries == 0 {
				return del
			}
		}
		return delAgain
	}
	return fast
}

func widthOf(l lane) int { return [lanes]int{1 << 30, 16, 32, 4}[l] }

// begin notes which step is under way, and whether there is room for it: else the claim
// is woken once there is.
func (a *Agent) begin(c *claim, s step, g goal) (lane, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ending && s.do == doAdd {
		return 0, false
	}
	now, sb := a.goalOf(c)
	if now != g || c.record.Abandoned() != nil && s.do == doDel && a.isTaken(c) { // it has changed while we decided
		a.wake(c)
		return 0, false
	}
	l := laneOf(c.record, s, sb)
	if a.used[l] >= widthOf(l) {
		a.waiting[l][c] = true
		return 0, false
	}
	a.used[l]++
	c.doing, c.of = s.do, g.sandbox
	return l, true
}

// end takes note of what a step has come to.
func (a *Agent) end(c *claim, s step, g goal, l lane, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used[l]--
	for other := range a.waiting[l] { // who finds no room waits again
		a.wake(other)
	}
	clear(a.waiting[l])
	c.doing, c.of = none, ""
	now, _ := a.goalOf(c)
	switch {
	case s.do == doDel || s.do == doReturn || c.gone: // which keep their own books
	case err != nil && now != g: // nobody wants that any more: it does not concern the new goal
		a.Log.Warn("not done", "what", s.do, "claim", c.ref, "error", err)
	case err == nil && s.do == c.trouble.step:
		c.trouble = retry{}
		a.backOff.Forget(c.key)
	case err != nil:
		c.trouble = retry{s.do, err, time.Now().Add(a.backOff.When(c.key))}
		a.Log.Error("not done", "what", s.do, "claim", c.ref, "error", err)
	}
	a.announce()
}
