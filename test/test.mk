# Tests and checks that take long, or need programs that few machines have. The Makefile includes this file.

# Programs of other projects: the tools of go.mod.
MULTUS := gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus
PEERS = $(shell go list -f '{{.ImportPath}}' tool | grep -v multus)

ATTACHMENTS := 1000
WORKERS := 50
SOAK := 1h
FUZZTIME := 30s
.PHONY: deps-peers test-load test-soak test-attacker test-fuzz test-arm64 test-schemas bench-driver bench-pods vulnerabilities

deps-peers: ## build cnitool and the reference plugins into bin/, for demo, test and bench
	@$(GO_BUILD) -o $(BIN)/ $(PEERS)

test-load: deps-peers ## run ATTACHMENTS (1000) on one node with WORKERS (50), with random kills and GCs; SEED repeats a run
	@DEVINFO_CRASH_ATTACHMENTS=$(ATTACHMENTS) DEVINFO_CRASH_WORKERS=$(WORKERS) DEVINFO_CRASH_SEED=$(SEED) $(GO_TEST) -run '^TestLoadLosesNoState$$' ./test/crash | go run ./test/report

test-soak: ## run random events and faults against cni-dra-driver for SOAK (1h)
	MODEL_TIME=$(SOAK) go test -count=1 -timeout 0 -v -run TestPodsGetNetworksAndLeaveNothingDespiteFaults ./pkg/dra

test-attacker: deps-peers ## run 10,000 rounds against an attacker who swaps links, FIFOs and directories while the plugin runs
	DEVINFO_ROUNDS=10000 go test -count=1 -timeout 2h -v -run 'Swapped' ./test/kernel

test-fuzz: ## run each fuzz target for FUZZTIME (30s)
	@test/fuzz $(FUZZTIME)

test-arm64: ## run the tests for arm64 that qemu-user can run, and list the others
	test/arm64

# Without a version, ajv-cli would use the newest ajv, which may be stricter.
AJV := npx --yes -p ajv-cli@5.0.0 -p ajv@8.20.0 ajv compile --spec=draft2020 --strict=true

test-schemas: ## compile docs/schema with ajv in strict mode, as editors and CI do; needs npm
	@cd docs/schema && $(AJV) -s plugin.json && $(AJV) -s '!(plugin).json' -r plugin.json

bench-driver: ## measure cni-dra-driver: sandboxes, claims, slices; fail if a limit is exceeded
	@test/bench/driver

bench-pods: build ## measure how long pods take to start with and without our programs, in a new cluster, and fail if a limit is exceeded; E2E_CLUSTER as in test-e2e
	@$(GO_BUILD) -o $(BIN)/ ./test/e2e/pod-view
	@E2E_MEASURE=1 go test -tags e2e,grpcnotrace -count=1 -timeout 1h -v -run '^TestPodsStartWithinLimits$$' ./test/e2e

vulnerabilities: ## check the functions that the programs call for known vulnerabilities of Go and the modules; skipped if VULNDB (https://vuln.go.dev) cannot be reached
	@test/lint/vulnerabilities '$(VULNDB)'
