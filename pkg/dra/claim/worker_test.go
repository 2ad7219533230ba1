package claim

import (
	"testing"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/test/difftest"
)

// The gate of a device without a network opens before the sandbox is known. It may list device nodes that a pod with its
// own user namespace cannot open. The sandbox may start while the worker reads or writes such a gate.
func TestStartingSandboxWaitsForGateThatKnowsIt(t *testing.T) {
	for name, work := range map[string]func(w *worker, c *claim, start func()){
		"while the gate is read": func(w *worker, c *claim, start func()) {
			seen := w.observe(c)
			start()
			_, _ = w.begin(c, reconcile(seen.record, seen.goal, seen.view), seen)
		},
		"while the gate is written": func(w *worker, c *claim, start func()) {
			w.steps.gate.Reached = func(string) { start() }
			difftest.Must(t, w.steps.gate.open(c, []int{0}))
			w.steps.gate.Reached = func(string) {}
		},
	} {
		e := newEngine(t)
		pod := state.Pod{Namespace: "ns", Name: "pod", UID: "uid-pod"}
		at := state.Attachment{Phase: state.Prepared, Request: "r", Device: "d", NodeDevice: &state.NodeDevice{}}
		c := newClaim(&state.Claim{UID: "u1", Pod: pod, Attachments: []state.Attachment{at}})
		e.table.claims["u1"] = c
		difftest.Must(t, e.gate.open(c, []int{0}))
		c.gatesOpen = map[int]bool{} // as after a restart of the driver
		sb := &sandbox{Sandbox: Sandbox{ID: "s1", Pod: pod, UserNamespace: true}}
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
