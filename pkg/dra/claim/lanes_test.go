package claim

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/plan"
	"devinfo-cni.io/test/difftest"
)

func TestStepsWaitForTheirSandboxAndTheirNetworks(t *testing.T) {
	b, a := state.Attachment{Network: "b", Execution: state.Execution{Sandbox: "s0"}}, state.Attachment{Network: "a", Execution: state.Execution{Sandbox: "s0", Tries: 1}}
	record := &state.Claim{Attachments: []state.Attachment{b, a, b}, Undeleted: []state.Attachment{a, {Network: "a", Execution: state.Execution{Sandbox: "s9"}}}}
	for _, test := range []struct {
		step    plan.Action
		at      []int
		sandbox *sandbox
		want    []lane
	}{
		{plan.DoAdd, []int{0, 1, 2}, &sandbox{ID: "s1"}, []lane{{ofSandbox, "s1"}, {lateAdd, "a,b"}}},
		{plan.DoAdd, []int{0}, &sandbox{ID: "s1", awaited: true}, []lane{{ofSandbox, "s1"}}},
		{plan.DoDel, []int{0, 1}, nil, []lane{{ofSandbox, "s0"}, {del, "a,b"}}},
		{plan.DoDel, []int{1}, nil, []lane{{ofSandbox, "s0"}, {delAgain, "a"}}},
		{plan.DoDel, []int{1}, &sandbox{ID: "s1", awaited: true}, []lane{{ofSandbox, "s0"}}},
		{plan.DoDelAgain, []int{0, 1}, nil, []lane{{ofSandbox, "s0"}, {ofSandbox, "s9"}, {delAgain, "a"}}},
		{plan.DoSave, nil, nil, nil},
	} {
		difftest.Same(t, fmt.Sprint(test.step, test.at), lanesOf(record, plan.Step{Do: test.step, At: test.at}, test.sandbox), test.want, cmp.AllowUnexported(lane{}))
	}
}

func TestStepThatEndsMakesRoomForTheNext(t *testing.T) {
	e := newEngine(t)
	var claims []*claim
	for _, uid := range []string{"u1", "u2"} {
		c := newClaim(&state.Claim{UID: uid, Attachments: []state.Attachment{{Phase: state.Deleting, Execution: state.Execution{Sandbox: "s0"}}}})
		e.table.claims[uid] = c
		claims = append(claims, c)
	}
	step, seen := plan.Step{Do: plan.DoDel, At: []int{0}}, observation{goal: plan.Goal{Want: plan.Keep}}
	lanes, ok := e.worker.begin(claims[1], step, seen)
	difftest.Same(t, "the first DEL begins", ok, true)
	_, ok = e.worker.begin(claims[0], step, seen)
	difftest.Same(t, "another one begins in the same sandbox", ok, false)
	difftest.Same(t, "queued claims", e.table.queue.Len(), 0)
	e.worker.end(claims[1], step, seen.goal, lanes, nil)
	if next, _ := e.table.queue.Get(); next != "u1" || len(e.worker.used) > 0 || len(e.worker.waiting) > 0 {
		t.Errorf("next %s; lanes: %v, waiting: %v", next, e.worker.used, e.worker.waiting)
	}
}
