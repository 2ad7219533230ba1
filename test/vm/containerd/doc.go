// Package containerd is a module of its own for the container runtime of the cluster in
// test/vm, whose dependencies are not the project's.
package containerd
