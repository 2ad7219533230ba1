// Package dra is the node agent of the CNI DRA driver: it attaches pods to the CNI
// networks that their resource claims ask for (Device Configuration API, group
// cni.networking.x-k8s.io/v1alpha1), and tells pods and API server what came of it
// (KEP-4817, KEP-5304).
//
// The kubelet prepares a claim, which only notes down what is to be done. When the
// container runtime has made the pod's sandbox it tells so by NRI, and each network is
// added; when the sandbox goes, each is deleted. What is owed is on disk before it is
// begun, see package state, and is made good after whatever crash: at the start, when
// the runtime connects, and every minute.
//
// Read prepare.go, sandbox.go, attach.go and detach.go in this order; sweep.go is for
// what went wrong.
package dra
