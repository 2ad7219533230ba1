package claim

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/plan"
)

// worker runs the steps of claims. A claim has at most one running step; different claims run in parallel.
type worker struct {
	*steps
	// The table's mutex guards used and waiting: see lanes.go.
	used    map[lane]int      // number of running steps
	waiting map[lane][]*claim // claims that wait for room in a lane; a claim may be listed twice
	// deciding has an element for each claim that is being observed. Half of the processors are left to the runtime's
	// requests, which wait for the same mutex.
	deciding chan struct{}
}

// run starts a goroutine for each queued claim, one at a time for a claim, until the queue shuts down.
func (w *worker) run() {
	var workers sync.WaitGroup
	for uid, shutdown := w.table.queue.Get(); !shutdown; uid, shutdown = w.table.queue.Get() {
		workers.Go(func() {
			defer w.table.queue.Done(uid)
			w.work(uid)
		})
	}
	workers.Wait()
}

// work runs steps of a claim until it needs none now.
func (w *worker) work(uid string) {
	for c, _ := w.table.find(uid); c != nil; c, _ = w.table.find(uid) {
		end := w.turn()
		seen := w.observe(c)
		s := plan.Next(seen.record, seen.goal, seen.view)
		lanes, ok := w.begin(c, s, seen)
		end()
		if !ok {
			return
		}
		w.end(c, s, seen.goal, lanes, w.execute(c, s, seen.sandbox))
	}
}

// turn waits until few claims are being observed. A claim whose reads hang loses its turn after a fraction of the time for
// which a sandbox waits, so that it delays the others once only.
func (w *worker) turn() (end func()) {
	w.deciding <- struct{}{}
	end = sync.OnceFunc(func() { <-w.deciding })
	time.AfterFunc(DefaultHold/10, end)
	return end
}

// observation is the state of a claim and of the node on which a decision is based.
type observation struct {
	record  *state.Claim
	goal    plan.Goal
	sandbox *sandbox // the sandbox to attach the claim to, or nil
	view    plan.View
	gates   map[int]bool // the claim's gatesOpen when the gates were read
	open    []bool       // the gates, as read
}

// observe reads the table, the network namespaces, the gates and the marks of administrators. It decides nothing.
func (w *worker) observe(c *claim) (seen observation) {
	w.table.observe(nil, c)
	var rdma string
	var running []state.Attachment
	w.table.do(func() {
		seen.record, seen.gates = c.record, c.gatesOpen
		seen.goal = w.table.goalOf(c)
		seen.sandbox = w.table.sandboxes[seen.goal.Sandbox]
		seen.view, rdma = w.viewOf(c, seen.goal), w.table.rdmaVariable(c.pod)
		for _, at := range c.record.Attachments {
			if at.HasNetns(w.table.bootID) && w.table.isListed(at.Sandbox) {
				running = append(running, at)
			}
		}
	})
	for _, at := range running { // an earlier process may have attached it
		w.holdNetns(&at)
	}
	for n, at := range seen.record.Attachments {
		open, current := w.gate.isOpen(seen.record, &at, rdma)
		seen.open, seen.view.Attachments[n].GateOpen = append(seen.open, open), current
	}
	for n, at := range seen.record.Undeleted {
		seen.view.Undeleted[n].Cleared = w.files.IsCleared(c.uid(), &at)
	}
	return seen
}

// viewOf returns the part of the view that needs no files. The mutex must be held.
func (w *worker) viewOf(c *claim, g plan.Goal) plan.View {
	clock := time.Now()
	now := plan.View{
		NeverSaved: c.saved == nil, Unsaved: c.saved != c.record || c.record.Pod != c.pod, MayRetry: !clock.Before(c.failure.after),
		AttachError: c.attachError != "",
		Reported:    c.record.StatusOwed && c.sentStatus != nil && reflect.DeepEqual(c.sentStatus, w.reports.devices(c)),
	}
	for n, at := range c.record.Attachments {
		now.Attachments = append(now.Attachments, w.viewOfAttachment(&at, g, !clock.Before(c.delBackOff[n].after)))
	}
	for _, at := range c.record.Undeleted {
		now.Undeleted = append(now.Undeleted, plan.AttachmentView{RetryDue: !clock.Before(c.retryUndeletedAt), DeviceInUse: w.table.isDeviceInUse(c, &at)})
	}
	return now
}

func (w *worker) viewOfAttachment(at *state.Attachment, g plan.Goal, due bool) plan.AttachmentView {
	lost, tries := at.BootID != w.table.bootID || w.table.goneNetns[at.Netns], w.options.DelMaxFailures
	if at.Phase == state.Restoring {
		tries = restoreTries
	}
	return plan.AttachmentView{
		Bare: at.Bare(), SameSandbox: at.Sandbox == g.Sandbox, NetnsGone: lost, RetryDue: due, TriesExhausted: at.Tries >= tries,
		SandboxGone: at.BootID != w.table.bootID || w.table.synced && lost && !w.table.isListed(at.Sandbox),
	}
}

// begin publishes which gates are open, and marks a step as running if the decision still holds and its lane has room.
// Otherwise it queues the claim again for later.
func (w *worker) begin(c *claim, s plan.Step, seen observation) ([]lane, bool) {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	for n, open := range seen.open {
		if seen.gates[n] != open {
			seen.gates[n] = open
			w.table.notifyWaiters()
		}
	}
	switch {
	case s.Do == plan.None, s.Do == plan.DoAdd && w.table.stopping:
		return nil, false
	case s.Do == plan.Wait:
		for _, r := range append(slices.Collect(maps.Values(c.delBackOff)), c.failure, retry{after: c.retryUndeletedAt}) {
			if pause := time.Until(r.after); pause > 0 {
				w.table.queue.AddAfter(c.uid(), pause)
			}
		}
		return nil, false
	}
	now := w.table.goalOf(c)
	isInUse := func(n int) bool { return w.table.isDeviceInUse(c, &c.record.Undeleted[n]) }
	changed := now != seen.goal || s.Do == plan.DoDelAgain && slices.ContainsFunc(s.At, isInUse)
	if !w.table.has(c) || changed {
		w.table.wake(c)
		return nil, false
	}
	lanes := lanesOf(c.record, s, w.table.sandboxes[now.Sandbox])
	if l, full := w.isFull(c, s, now, lanes); full {
		w.waiting[l] = append(w.waiting[l], c)
		return nil, false
	}
	for _, l := range lanes {
		w.used[l]++
	}
	c.runningStep, c.stepSandbox = s.Do, seen.goal.Sandbox
	return lanes, true
}

// end records whether a step failed, and makes room in its lanes.
func (w *worker) end(c *claim, s plan.Step, g plan.Goal, lanes []lane, err error) {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	for _, l := range lanes {
		if w.used[l]--; w.used[l] == 0 {
			delete(w.used, l)
		}
		for _, other := range w.waiting[l] { // other waits again if the lane is still full
			w.table.wake(other)
		}
		delete(w.waiting, l)
	}
	c.runningStep, c.stepSandbox = plan.None, ""
	now := w.table.goalOf(c)
	switch {
	case !w.table.has(c): // Prepare returns the error of its save
	case err != nil && now != g: // the goal has changed, so the failure does not concern the new goal
		w.options.Log.Warn("step failed, and is no longer needed", "step", s.Do, "claim", c.ref, "error", err)
	case err == nil && s.Do == c.failure.step:
		c.failure = retry{}
	case err != nil:
		pause := min(max(2*c.failure.pause, time.Second), time.Minute)
		c.failure = retry{s.Do, err, pause, time.Now().Add(pause)}
		w.options.Log.Error("step failed; retrying", "step", s.Do, "claim", c.ref, "error", err)
		w.table.wakePod(c.pod) // claims that come later no longer wait for this one
	}
	w.table.notifyWaiters()
}

func (s *steps) execute(c *claim, next plan.Step, sb *sandbox) error {
	switch next.Do {
	case plan.DoAdd:
		return s.add(c, next.At, sb)
	case plan.DoDel:
		s.delete(c, next.At)
	case plan.DoDelAgain:
		s.deleteAgain(c, next.At)
	case plan.DoRestore:
		s.restore(c, next.At)
	case plan.DoOpen:
		return s.gate.open(c, next.At, func() {})
	case plan.DoGiveUp:
		return s.giveUp(c, next.At)
	case plan.DoSave:
		return s.save(c)
	case plan.DoRecordError:
		s.recordAttachError(c)
	case plan.DoForget:
		return s.forget(c)
	case plan.DoClear:
		return s.clear(c, next.At)
	case plan.DoMarkReported:
		record := c.record.Clone()
		record.StatusOwed = false
		return s.put(c, record, "reported")
	}
	return nil
}
