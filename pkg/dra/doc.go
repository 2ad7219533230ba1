// Package dra is the node agent of the CNI DRA driver: it attaches pods to the CNI
// networks that their resource claims ask for (Device Configuration API, group
// cni.networking.x-k8s.io/v1alpha1), and tells pods and API server what came of it
// (KEP-4817, KEP-5304).
//
// It is level-triggered. An event only changes what is wanted of a claim and wakes its
// worker; the worker takes one step after the other until the claim is as it is wanted.
// What is owed is on disk before it is begun, see package state, so that a crash, a retry
// and a network that is added late take the same path as all else.
//
// The life of a claim, and the order to read in:
//
//   - events.go: the kubelet prepares the claim. [Agent.Prepare] makes a record, wakes the
//     worker, and waits until the record is on disk. bind.go puts the device that is
//     allocated, if it is one of the node's own, into the CNI configuration.
//   - pods.go: the runtime has made the pod's sandbox. [Agent.RunPodSandbox] notes it and
//     waits for the networks. From then on the claim's goal is that sandbox: see
//     goalOf in sandbox.go.
//   - reconcile.go: record, goal and world go in, the next step comes out. It is pure, and
//     README.md shows its rules.
//   - worker.go: looks at the world, takes steps, and keeps slow ones out of each other's
//     way.
//   - attach.go, gate.go: ADD; then the metadata, and the CDI spec for which the claim's
//     containers wait. report.go sends the status, notices.go makes Events.
//   - pods.go again: the sandbox stops, and the goal is to detach.
//   - detach.go: DEL, which is tried again, and given up in the end. restore.go: then a device
//     of the node becomes what it was before the ADD. health.go tells what is wrong with one.
//   - events.go again: the claim is unprepared, and its record removed. collect.go: or it is gone.
//
// inventory.go looks at the node's own devices, for Prepare and for publish.go. reserved.go
// reads which pod a claim belongs to. kubelet.go and publish.go are the connections to
// the kubelet and the scheduler.
package dra
