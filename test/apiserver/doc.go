// Package apiserver tests what the DRA driver says to the API server against a real
// one: kube-apiserver and etcd, on the loopback interface, for as long as the tests
// run. "make deps-apiserver" builds both into bin/, of the module in programs/; the first
// time that takes about ten minutes, and K8S_VERSION chooses another version, from 1.36
// on. Without them the tests are skipped, unless DEVINFO_APISERVER=must is set.
//
// The agent has the rights of deploy/cni-dra-driver, and a token that is bound to its
// node, as the kubelet gives it one.
package apiserver
