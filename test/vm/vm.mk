# A cluster whose node runs in QEMU. The Makefile includes this file.

include test/hardware/hardware.mk

.PHONY: deps-cluster deps-containerd e2e-qemu

deps-cluster: deps-containerd ## build a control plane, kubelet, containerd and CNI plugins into bin/cluster, for test-e2e E2E=qemu; K8S_VERSION=1.37.1 selects the version; the first build takes about 25 minutes
	@test/apiserver/programs/build $(BIN)/cluster '$(K8S_VERSION)' kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl

deps-containerd:
	@mkdir -p $(BIN)/cluster
	cd test/vm/containerd && go build -ldflags '-s -w' -tags no_btrfs,no_zfs,no_devmapper,no_tracing -o $(BIN)/cluster/ tool
	@$(GO_BUILD) -o $(BIN)/cluster/ tool
	@$(GO_BUILD) -o $(BIN)/cluster/ ./test/vm/onnode
	@$(GO_BUILD) -o $(BIN)/cluster/sriov ./test/vm/standin

# The cluster has a network namespace of its own, so the tests run inside it (E2E_CLUSTER run).
e2e-qemu: export E2E_CLUSTER := $(CURDIR)/test/vm/cluster
e2e-qemu: export E2E_PATIENCE := 10
e2e-qemu: build deps-peers
	@$(GO_BUILD) -o $(BIN)/ ./test/e2e/pod-view
	@cd test/deploy && $(GO_BUILD) -o $(BIN)/ tool
	@go test -tags e2e,grpcnotrace -ldflags '-s -w' -c -o $(BIN)/e2e.test ./test/e2e
	@$(E2E_CLUSTER) up >/dev/null
	@cd test/e2e && $(E2E_CLUSTER) run env -u KUBECONFIG go tool test2json -t -p devinfo-cni.io/test/e2e $(BIN)/e2e.test -test.v=test2json -test.timeout 3h -test.run '^TestRealDevices$$' | $(REPORT)
