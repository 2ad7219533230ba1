// Package claim is the engine of the CNI DRA driver. It records the claims that the kubelet prepares, runs the
// CNI plugins of their networks when the runtime reports a sandbox, opens the gates of containers, and undoes all
// of this when the pod ends. It uses package devices for everything that depends on the node's devices.
//
// The engine is level-triggered. An event changes the goal of a claim and wakes the claim's worker. The worker
// runs one step after another until the claim has reached its goal; README.md lists the rules. A step is on disk
// before it starts. Therefore crashes, retries and late networks need no code of their own.
//
// The parts of an [Engine]:
//
//   - table: all claims and sandboxes, and the only mutex (table.go, reserve.go)
//   - kubelet.go and runtime.go: the events, which wait for their outcome
//   - worker: observes the node, calls [reconcile], and runs the step that it returns
//   - steps: ADD, DEL, restore, and giving up (add.go, del.go, giveup.go)
//   - gate: the CDI specs that the containers of a claim need to start
//   - records: the claims on disk
//   - reports and notices: claim status for the API server, and Events for authors of pods
package claim
