// Package programs is a module that pins kube-apiserver and etcd, which the tests start. It is separate, because the
// project does not need their dependencies. Modules in the Kubernetes repository's staging directory are replaced by
// their published versions.
package programs
