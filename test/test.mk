# Tests and checks that take long, or need programs that few machines have. The Makefile includes this file.

# Programs of other projects: the tools of go.mod.
MULTUS := gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus
PEERS = $(shell go list -f '{{.ImportPath}}' tool | grep -v multus)

ATTACHMENTS := 1000
WORKERS := 50
SOAK := 1h
FUZZTIME := 30s
.PHONY: deps-peers crash-all crash-sample crash-load crash-attacker crash-soak crash-fuzz crash-faults bench-plugin bench-driver bench-pods e2e-node test-arm64 vulnerabilities

deps-peers: ## build cnitool and the reference plugins into bin/, for demo, test and bench
	@$(GO_BUILD) -o $(BIN)/ $(PEERS)

# make test-crash CRASH=all, of which CRASH=sample takes some; SEED repeats a run
crash-all crash-sample: deps-peers
	@DEVINFO_CRASH=$(CRASH) DEVINFO_CRASH_SEED=$(SEED) $(GO_TEST) -timeout 6h ./test/crash/... | $(REPORT)
ifeq ($(CRASH),all)
	@DEVINFO_CRASH=all $(GO_TEST) -timeout 6h -run '^TestNextStartCleansUpAfterKillAtAnyStep$$' ./pkg/dra | $(REPORT)
endif

# ATTACHMENTS on one node by WORKERS, with random kills and GCs
crash-load: deps-peers
	@DEVINFO_CRASH_ATTACHMENTS=$(ATTACHMENTS) DEVINFO_CRASH_WORKERS=$(WORKERS) DEVINFO_CRASH_SEED=$(SEED) $(GO_TEST) -run '^TestLoadLosesNoState$$' ./test/crash | $(REPORT)

# 10,000 rounds against an attacker who swaps links, FIFOs and directories while the plugin runs
crash-attacker: deps-peers
	DEVINFO_ROUNDS=10000 go test -count=1 -timeout 2h -v -run 'Swapped' ./test/kernel

# random events and faults against cni-dra-driver for SOAK
crash-soak:
	MODEL_TIME=$(SOAK) go test -count=1 -timeout 0 -v -run TestPodsGetNetworksAndLeaveNothingDespiteFaults ./pkg/dra

# each fuzz target for FUZZTIME
crash-fuzz:
	@test/fuzz $(FUZZTIME)

# every error at every read of each program
crash-faults:
	@DEVINFO_FAULTS=all $(GO_TEST) -timeout 6h ./test/faults | $(REPORT)

# FORMER=file compares with an older build in bin/ too
bench-plugin: build deps-peers
	@$(GO_BUILD) -o $(BIN)/bench/ ./test/bench/peak $(MULTUS)
	@DEVINFO_BENCH= DEVINFO_BENCH_FORMER='$(FORMER)' go test -count=1 -timeout 2h -v -run '^TestRatiosAreWithinGates$$' ./test/bench

bench-driver:
	@test/bench/driver

# how long pods take to start with and without our programs, in a new cluster
bench-pods: build
	@$(GO_BUILD) -o $(BIN)/ ./test/e2e/pod-view
	@E2E_MEASURE=1 go test -tags e2e,grpcnotrace -count=1 -timeout 1h -v -run '^TestPods' ./test/e2e

# Without KUBECONFIG the program E2E_CLUSTER creates the cluster.
e2e-node: build deps-peers
	@$(GO_BUILD) -o $(BIN)/ ./test/e2e/pod-view
	@cd test/deploy && $(GO_BUILD) -o $(BIN)/ tool
	@go test -tags e2e,grpcnotrace -count=1 -timeout 3h -json ./test/e2e | $(REPORT)

test-arm64: ## run the tests for arm64 that qemu-user can run, and list the others
	test/arm64

vulnerabilities: ## check the functions that the programs call for known vulnerabilities of Go and the modules; skipped if VULNDB (https://vuln.go.dev) cannot be reached
	@test/lint/vulnerabilities '$(VULNDB)'
