// Package dra is the node agent of the CNI DRA driver: it attaches pods to the CNI networks that their
// resource claims ask for (Device Configuration API, group cni.networking.x-k8s.io/v1alpha1), and reports
// the result to pods and API server (KEP-4817, KEP-5304).
//
// Package claim is the engine, and knows no device. Package devices knows the devices of the node, and no
// sandbox. This package connects them to kubelet, container runtime and API server. README.md follows one
// claim through all three.
package dra
