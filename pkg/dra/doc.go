// Package dra is the node agent of the CNI DRA driver. It attaches pods to the CNI networks that their
// ResourceClaims request (Device Configuration API, group cni.networking.x-k8s.io/v1alpha1), and reports the
// result to pods and to the API server (KEP-4817, KEP-5304).
//
// Package claim is the engine; it does not depend on kinds of devices. Package devices offers, leases, binds and
// restores the devices of the node; it does not depend on sandboxes. Each has one mutex, and never holds it while it
// reads a file, runs a plugin or calls the other. This package connects both to the kubelet, the container runtime
// and the API server. docs/architecture.md follows one claim through all three. Package dratest is the node on which
// tests run them.
//
// Packages here may import each other, pkg/core, pkg/host and the library devinfo. Begin reading in kubelet.go, where
// the kubelet's calls arrive, then in claim/kubelet.go, which does the work, and claim/README.md.
package dra
