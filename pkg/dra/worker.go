package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/dra/state"
)

// Run makes good what is owed, now, whenever something happens, and every
// [Options.Sweep]; and it sends status. It returns when ctx has ended and so has all
// work: no CNI plugin is left running. The agent is of no use after that.
func (a *Agent) Run(ctx context.Context) {
	var background sync.WaitGroup
	background.Go(func() { a.sendReports(ctx) })
	background.Go(func() { a.dispatch() })
	background.Go(func() { a.keepCollecting(ctx) })
	tick := time.NewTicker(a.Sweep)
	defer tick.Stop()
	for ctx.Err() == nil {
		a.look()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	a.mu.Lock()
	a.ending = true
	a.mu.Unlock()
	a.queue.ShutDown()
	background.Wait()
	close(a.over)
}

// dispatch gives each claim that was woken a worker of its own. The queue keeps a second
// one from beginning before the first has ended.
func (a *Agent) dispatch() {
	var workers sync.WaitGroup
	for {
		uid, shutdown := a.queue.Get()
		if shutdown {
			break
		}
		workers.Go(func() {
			defer a.queue.Done(uid)
			a.work(uid)
		})
	}
	workers.Wait()
}

// work takes one step after the other until nothing is left to do now.
func (a *Agent) work(uid types.UID) {
	for {
		a.mu.Lock()
		c := a.claims[uid]
		a.mu.Unlock()
		if c == nil {
			return
		}
		s, g, sb := a.next(c)
		switch s.do {
		case none:
			return
		case wait:
			a.comeBack(c)
			return
		}
		lane, ok := a.begin(c, s, g)
		if !ok {
			return
		}
		err := a.execute(c, s, sb)
		a.end(c, s, g, lane, err)
	}
}

// next looks at the world and decides.
func (a *Agent) next(c *claim) (step, goal, *sandbox) {
	a.mu.Lock()
	g, sb := a.goalOf(c)
	now := a.worldOf(c, g)
	record := c.record
	stale := c.rewrite
	a.mu.Unlock()
	for n := range record.Attachments {
		at := &record.Attachments[n]
		now.attachments[n].open = (at.Phase == state.Added || at.Bare()) && !stale && a.isOpen(record, at)
	}
	for n := range record.Abandoned {
		at, around := &record.Abandoned[n], &now.abandoned[n]
		around.cleared = a.state.IsCleared(c.ref.UID, at)
		around.taken = around.taken || around.due && a.isGivenBare(at)
	}
	return reconcile(record, g, now), g, sb
}

// worldOf is what the agent knows of the world. The mutex must be held.
func (a *Agent) worldOf(c *claim, g goal) world {
	now := time.Now()
	w := world{
		fresh: c.fresh, unsaved: c.unsaved, retry: !now.Before(c.trouble.after),
		blamed:   c.blame != "",
		reported: c.record.StatusOwed && c.sent != nil && reflect.DeepEqual(c.sent, a.devices(c)),
	}
	for n := range c.record.Attachments {
		at := &c.record.Attachments[n]
		w.attachments = append(w.attachments, a.aroundOf(at, g, !now.Before(c.late[n].after)))
	}
	for n := range c.record.Abandoned {
		w.abandoned = append(w.abandoned, around{due: !now.Before(c.redo), taken: a.isTaken(c, &c.record.Abandoned[n])})
	}
	return w
}

func (a *Agent) aroundOf(at *state.Attachment, g goal, due bool) around {
	if at.Phase == state.Prepared {
		return around{bare: at.Bare()}
	}
	lost, tries := at.BootID != a.BootID || a.isGone(at.Netns), a.DelTries
	if at.Phase == state.Restoring {
		tries = restoreTries
	}
	return around{
		here: at.Sandbox == g.sandbox, lost: lost, due: due, exhausted: at.Tries >= tries,
		dead: at.BootID != a.BootID || a.synced && lost && !a.isListed(at.Sandbox),
	}
}

// comeBack wakes the claim when a back-off is over.
func (a *Agent) comeBack(c *claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range append(slices.Collect(maps.Values(c.late)), c.trouble, retry{after: c.redo}) {
		if pause := time.Until(r.after); pause > 0 {
			a.queue.AddAfter(c.ref.UID, pause)
		}
	}
}

// execute does a step. What it has come to is on record when it returns.
func (a *Agent) execute(c *claim, s step, sb *sandbox) error {
	switch s.do {
	case doAdd:
		return a.add(c, s.at, sb)
	case doDel:
		a.delete(c, s.at)
		return nil
	case doAgain:
		a.deleteAgain(c, s.at)
		return nil
	case doReturn:
		a.restore(c, s.at)
		return nil
	case doOpen:
		return a.reopen(c, s.at)
	case giveUp:
		return a.abandon(c, s.at)
	case doSave:
		return a.saveNow(c)
	case doBlame:
		a.setBlame(c)
		return nil
	case doForget:
		return a.forgetNow(c)
	case doClear:
		return a.clear(c, s.at)
	case reported:
		record := c.record.Clone()
		record.StatusOwed = false
		return a.put(c, record, "reported")
	}
	return fmt.Errorf("claim %s: step %q is not known", c.ref, s.do)
}

// isOpen says whether the gate of an attachment is open. The directory of CDI specs does
// not outlive a reboot, and others may clear it; nor does a lease.
func (a *Agent) isOpen(record *state.Claim, at *state.Attachment) bool {
	if at.Bare() && !a.node.Leases.IsHeld(record) {
		return false
	}
	spec, err := a.specs.Read(cdispec.FileName(a.kind, gateName(record.UID, at)))
	return err == nil && a.isGuarded(at, spec) || err != nil && !errors.Is(err, fs.ErrNotExist)
}

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
	case doAgain:
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
	taken := func(n int) bool { return a.isTaken(c, &c.record.Abandoned[n]) }
	if c.gone || now != g || s.do == doAgain && slices.ContainsFunc(s.at, taken) { // it has changed while we decided
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
	case s.do == doDel || s.do == doAgain || s.do == doReturn || c.gone: // which keep their own books
	case err != nil && now != g: // nobody wants that any more: it does not concern the new goal
		a.Log.Warn("not done", "what", s.do, "claim", c.ref, "error", err)
	case err == nil && s.do == c.trouble.step:
		c.trouble = retry{}
		a.backOff.Forget(c.ref.UID)
	case err != nil:
		c.trouble = retry{s.do, err, time.Now().Add(a.backOff.When(c.ref.UID))}
		a.Log.Error("not done", "what", s.do, "claim", c.ref, "error", err)
	}
	a.announce()
}
