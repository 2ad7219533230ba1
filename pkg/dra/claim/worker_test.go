package claim

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/plan"
	"devinfo-cni.io/test/difftest"
)

// The gate of a device without a network opens before the sandbox is known. It may list device nodes that a pod with its
// own user namespace cannot open. The sandbox may start while the worker reads or writes such a gate.
func TestStartingSandboxWaitsForGateThatKnowsIt(t *testing.T) {
	for name, work := range map[string]func(w *worker, c *claim, start func()){
		"while the gate is read": func(w *worker, c *claim, start func()) {
			seen := w.observe(c)
			start()
			_, _ = w.begin(c, plan.Next(seen.record, seen.goal, seen.view), seen)
		},
		"while the gate is written": func(w *worker, c *claim, start func()) {
			w.steps.gate.Reached = func(string) { start() }
			difftest.Must(t, w.steps.gate.open(c, []int{0}, func() {}))
			w.steps.gate.Reached = func(string) {}
		},
	} {
		e := newEngine(t)
		pod := state.Pod{Namespace: "ns", Name: "pod", UID: "uid-pod"}
		at := state.Attachment{Phase: state.Prepared, Request: "r", Device: "d", NodeDevice: &state.NodeDevice{}}
		c := newClaim(&state.Claim{UID: "u1", Pod: pod, Attachments: []state.Attachment{at}})
		e.table.claims["u1"] = c
		difftest.Must(t, e.gate.open(c, []int{0}, func() {}))
		c.gatesOpen = map[int]bool{} // as after a restart of the driver
		sb := &sandbox{ID: "s1", Pod: pod, userns: true}
		work(e.worker, c, func() {
			_, err := e.addSandbox(t.Context(), sb)
			difftest.Must(t, err)
		})
		for _, opened := range []bool{false, true} {
			attached, err := e.isAttached(sb, []*claim{c})
			difftest.Must(t, err)
			difftest.Same(t, name, attached, opened)
			e.worker.work("u1") // opens the gate again
		}
	}
}

// Other steps of the claim go on during a back-off. A step may fail after the goal has changed: Unprepare must not return the
// error of a save for Prepare.
func TestBackOffIsThatOfItsStepAndGoal(t *testing.T) {
	e, full := newEngine(t), errors.New("the disk is full")
	c, goal := newClaim(&state.Claim{UID: "u1"}), plan.Goal{Want: plan.Keep}
	e.table.claims["u1"] = c
	for _, test := range []struct {
		do                    plan.Action
		err                   error
		forgotten, backingOff bool
	}{
		{plan.DoSave, full, false, true},
		{plan.DoRecordError, nil, false, true},
		{plan.DoSave, nil, false, false},
		{plan.DoSave, full, true, false},
	} {
		step := plan.Step{Do: test.do}
		lanes, ok := e.worker.begin(c, step, observation{goal: goal})
		difftest.Same(t, "the step begins", ok, true)
		if test.forgotten {
			e.table.do(func() { e.table.forget(c) })
		}
		e.worker.end(c, step, goal, lanes, test.err)
		difftest.Same(t, fmt.Sprintf("%+v: the claim is backing off", test), c.failure.err != nil, test.backingOff)
	}
}

// A retry would take the device from whoever has it or is about to get it.
func TestRetryOfDELWaitsForHoldersOfDevice(t *testing.T) {
	network := []byte("{}")
	for _, test := range []struct {
		holder    state.Attachment
		gateOpen  bool
		undeleted bool
		own       bool // the holder is of the claim itself
		runs      plan.Action
		inUse     bool
	}{
		{holder: state.Attachment{Phase: state.Prepared, List: network}},
		{holder: state.Attachment{Phase: state.Prepared, List: network}, runs: plan.DoAdd, inUse: true},
		{holder: state.Attachment{Phase: state.Prepared, List: network}, runs: plan.DoAdd, own: true, inUse: true},
		{holder: state.Attachment{Phase: state.Prepared, List: network}, runs: plan.DoSave},
		{holder: state.Attachment{Phase: state.Added, List: network}, inUse: true},
		{holder: state.Attachment{Phase: state.Prepared}},
		{holder: state.Attachment{Phase: state.Prepared}, runs: plan.DoOpen, inUse: true},
		{holder: state.Attachment{Phase: state.Prepared}, gateOpen: true, inUse: true},
		{holder: state.Attachment{Phase: state.Undeleted}, undeleted: true, gateOpen: true},
		{holder: state.Attachment{Phase: state.Undeleted}, undeleted: true, runs: plan.DoAdd},
		{holder: state.Attachment{Phase: state.Undeleted}, undeleted: true, runs: plan.DoDelAgain, inUse: true},
		{holder: state.Attachment{Phase: state.Undeleted}, undeleted: true, runs: plan.DoDelAgain, own: true},
	} {
		e := newEngine(t)
		c := newClaim(&state.Claim{UID: "u1", Undeleted: []state.Attachment{{Phase: state.Undeleted}}})
		holder := newClaim(&state.Claim{UID: "u2"})
		if test.own {
			holder = c
		}
		e.table.claims = map[string]*claim{"u1": c, holder.uid(): holder}
		if test.undeleted {
			holder.record.Undeleted = append(holder.record.Undeleted, test.holder)
		} else {
			holder.record.Attachments = append(holder.record.Attachments, test.holder)
		}
		holder.gatesOpen[0], holder.runningStep = test.gateOpen, test.runs
		difftest.Same(t, fmt.Sprintf("%+v", test), e.table.isDeviceInUse(c, &c.record.Undeleted[0]), test.inUse)
	}
}

// The reads of other claims may hang. Each of them delays the decisions about the others once.
func TestClaimIsNotKeptByReadsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worker{deciding: make(chan struct{}, 2)}
		for range cap(w.deciding) {
			w.turn() // never ends
		}
		began := time.Now()
		for range 100 {
			w.turn()()
		}
		if took := time.Since(began); took > DefaultHold/5 {
			t.Errorf("a hundred decisions wait %v for reads that hang", took)
		}
	})
}

func newEngine(t *testing.T) *Engine {
	t.Helper()
	dir := t.TempDir()
	e, err := New(Options{
		Driver: "d.example.com", Dirs: Dirs{StateDir: dir, CacheDir: dir, CDIDir: dir, DeviceInfoDir: dir},
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	difftest.Must(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}
