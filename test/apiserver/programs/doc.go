// Package programs is a module of its own for the programs of a Kubernetes control
// plane that the tests start: kube-apiserver and etcd. Their dependencies are not
// the project's. Each module of Kubernetes that its repository keeps in a folder is
// replaced by the one that was published of it.
package programs
