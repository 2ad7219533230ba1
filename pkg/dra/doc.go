// Package dra is the node agent of the CNI DRA driver. It attaches pods to the CNI networks that their
// ResourceClaims request (Device Configuration API, group cni.networking.x-k8s.io/v1alpha1), and reports the
// result to pods and to the API server (KEP-4817, KEP-5304).
//
// Package claim is the engine; it does not depend on kinds of devices. Package devices manages the devices of
// the node; it does not depend on sandboxes. This package connects both to the kubelet, the container runtime
// and the API server. docs/architecture.md follows one claim through all three.
//
// Packages here may import each other, pkg/core, pkg/host and the library devinfo. Begin reading with README.md.
package dra
