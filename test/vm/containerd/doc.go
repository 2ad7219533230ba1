// Package containerd is a module for the container runtime of the cluster in test/vm. It is separate, because the
// project does not need its dependencies.
package containerd
