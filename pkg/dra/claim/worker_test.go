package claim

import (
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/test/difftest"
)

// The gate of a bare device opens before its pod's sandbox is known, and lists device nodes that a pod with its own user
// namespace cannot open. The sandbox may start while the worker reads or writes such a gate.
func TestStartingSandboxDoesNotTrustEarlierGate(t *testing.T) {
	for name, work := range map[string]func(w *worker, c *claim, start func(at string)){
		"while it is read": func(w *worker, c *claim, start func(string)) {
			seen := w.observe(c)
			start("gate open")
			_, _ = w.begin(c, reconcile(seen.record, seen.goal, seen.view), seen)
		},
		"while it is written": func(w *worker, c *claim, start func(string)) {
			w.steps.gate.step = start
			difftest.Must(t, w.steps.gate.open(c, []int{0}))
		},
	} {
		e := newEngine(t)
		pod := state.Pod{Namespace: "ns", Name: "pod", UID: "uid-pod"}
		c := newClaim(&state.Claim{UID: "u1", Pod: pod, Attachments: []state.Attachment{{Phase: state.Prepared, Request: "r", Device: "d", NodeDevice: &state.NodeDevice{}}}})
		e.table.claims["u1"] = c
		difftest.Must(t, e.gate.open(c, []int{0}))
		c.gatesOpen = map[int]bool{} // as after a restart of the driver
		sb := &sandbox{Sandbox: Sandbox{ID: "s1", Pod: pod, UserNamespace: true}}
		work(e.worker, c, func(at string) {
			if strings.HasPrefix(at, "gate open") {
				_, err := e.addSandbox(t.Context(), sb)
				difftest.Must(t, err)
			}
		})
		for _, stale := range []bool{true, false} {
			attached, err := e.isAttached(sb, []*claim{c})
			difftest.Must(t, err)
			difftest.Same(t, name, attached, !stale)
			e.worker.work("u1")
		}
	}
}
