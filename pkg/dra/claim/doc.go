// Package claim is the engine of the CNI DRA driver. It records the claims that the kubelet prepares, runs
// the CNI plugins of their networks when the runtime tells of a sandbox, opens the gates of containers, and
// undoes all of it. It knows nothing of devices but what package devices tells.
//
// The engine is level-triggered. An event changes what is wanted of a claim, and wakes its worker. The worker
// takes one step after the other until the claim is as wanted: see README.md. What is owed is on disk before
// it is begun, so that a crash, a retry and a late network take the same path as everything else.
//
// The parts of an [Engine]:
//
//   - table: what is known of claims and sandboxes, and the only mutex (table.go, reserve.go)
//   - kubelet.go and runtime.go: the events, which wait for what comes of them
//   - worker: looks at the world, asks [reconcile], and takes the step that it returns
//   - steps: ADD, DEL, restoring, and giving up (add.go, del.go, giveup.go)
//   - gate: the CDI specs without which containers of a claim do not start
//   - records: the claims on disk; reports and notices: what API server and authors of pods are told
package claim
