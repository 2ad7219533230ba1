// Package apiserver tests the DRA driver against a real API server: kube-apiserver and etcd, which listen on the
// loopback interface while the tests run. "make deps-apiserver" builds both into bin/ from the module in programs/. The
// first build takes about ten minutes. K8S_VERSION selects the version, 1.36 or later. Without the programs the tests
// are skipped, unless DEVINFO_APISERVER=must is set. If the tests are killed, the programs go on: end them yourself.
//
// The agent has the rights in deploy/cni-dra-driver. Its token is bound to its node, like the token in its pod.
package apiserver
