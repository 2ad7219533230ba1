# Programs of Kubernetes for tests. The Makefile includes this file.

.PHONY: deps-apiserver

deps-apiserver: ## build kube-apiserver and etcd into bin/, for test; K8S_VERSION=1.37.1 selects the version; the first build takes about 10 minutes
	@test/apiserver/programs/build $(BIN) '$(K8S_VERSION)' kube-apiserver
