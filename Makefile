# "make" alone lists the targets.

BIN := $(CURDIR)/bin
CNI_BIN := /opt/cni/bin
FUZZTIME := 30s
CRASH := all
BENCH := $(BIN)
FORMER :=
ATTACHMENTS := 1000
WORKERS := 50
SEED := 0
SCALE := 1
SOAK := 1h
DIST := $(CURDIR)/dist
ARCHES := amd64 arm64
REGISTRY := cluster.local
DOWNLOADS :=
SOURCE :=
BUILDER :=
TAG := 1
VULNDB := https://vuln.go.dev
VERSION := $(if $(filter command,$(origin TAG)),$(TAG),$(shell git describe --tags --always --dirty 2>/dev/null))
REVISION := $(shell git rev-parse HEAD 2>/dev/null)

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help help-all build programs kubectl deps-peers deps-apiserver image push registry generate release release-check demo test test-projects test-arm64 test-crash test-schemas lint vulnerabilities bench bench-scale test-load test-soak test-fuzz test-attacker test-e2e test-vm test-vm-e2e deps-cluster deps-containerd install clean

# The library is a separate module, so ./... does not include it.
PACKAGES := ./... devinfo-cni.io/devinfo/...
# Separate modules with tests, because the programs do not need their dependencies. PROJECTS import other
# projects: Multus, the scheduler, KubeVirt, Helm, Prometheus, a registry.
MODULES := test/peers test/schema
PROJECTS := test/peers/multus test/scheduler test/kubevirt test/deploy deploy/pack

# Programs, tests, and programs that tests build have the same flags, so that shared packages are compiled once.
# nogreenteagc: most of our programs run for a moment and need no garbage collection. Go 1.26's collector makes
# them touch 44 more pages of memory (of 350). A Go version without another collector uses its default.
# grpcnotrace: gRPC's traces, which we do not use, import html/template. It may call any method of any type, so
# the linker would keep all methods, a third of cni-dra-driver.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath -buildvcs=% -tags=%,$(shell go env GOFLAGS)) -trimpath -buildvcs=false -tags=grpcnotrace)
export GOEXPERIMENT := $(shell GOEXPERIMENT=nogreenteagc go env GOVERSION >/dev/null 2>&1 && echo nogreenteagc)

GO_BUILD := go build -ldflags '-s -w -X devinfo-cni.io/pkg/core/build.version=$(VERSION) -X devinfo-cni.io/pkg/core/build.revision=$(REVISION)'

# Segments are aligned to 32 KiB. Aligned to pages, 80 more pages of the file are mapped (peak RSS in make bench).
# With 128 KiB the number is the same as with 32, but the file is up to 0.3 MB longer.
OURS = $(GO_BUILD:'=) -R 0x8000'

# The targets that help lists. help-all lists all rules with a "##" comment.
TARGETS := build demo test lint image push install test-e2e bench help-all

help:
	@$(MAKE) --no-print-directory help-all | grep -E '^make ($(subst $() ,|,$(TARGETS))) '

help-all: ## list all targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24

build: ## build the programs into bin/, static and stripped
	$(OURS) -o $(BIN)/ ./cmd/...

programs:
	@rm -rf $(BIN)/linux_*
	@for arch in $(ARCHES); do GOOS=linux GOARCH=$$arch $(OURS) -o $(BIN)/linux_$$arch/ ./cmd/...; done

# Users run kubectl-devinfo on their own machines.
kubectl: programs
	@rm -rf $(BIN)/darwin_*
	@for arch in $(ARCHES); do GOOS=darwin GOARCH=$$arch $(GO_BUILD) -o $(BIN)/darwin_$$arch/ ./cmd/kubectl-devinfo; done

# All files have the commit's time.
PACK = cd deploy/pack && go run . $(1) -bin $(BIN) -version '$(VERSION)' -revision '$(REVISION)' \
	-time $(shell git log -1 --format=%ct 2>/dev/null || echo 0) -prefix '$(REGISTRY)' -source '$(SOURCE)' $(if $(BUILDER),-builder '$(BUILDER)')

image: programs ## build both agents' images REGISTRY/NAME:TAG for ARCHES as OCI archives in bin/, without a daemon
	@$(call PACK,images) -tag '$(TAG)' -out $(BIN)

push: registry programs ## build the images, and push them to REGISTRY with the credentials of "docker login", each with an SPDX document and SLSA provenance as referrers; SOURCE and BUILDER are the URLs of the repository and the job for these
	@$(call PACK,images) -tag '$(TAG)' -out $(BIN) -push

registry:
	@[ '$(REGISTRY)' != cluster.local ] || { echo 'REGISTRY is not set: make push REGISTRY=registry.example.com/net TAG=v0.1.0'; exit 1; }

generate: ## write the manifests for kustomize from the chart, the node settings into the chart's schema, and docs/devinfo.svg; run it after a change of the chart, of docs/schema/node.json or of test/picture
	go run ./test/picture docs/devinfo.svg
	cd test/deploy && go test -count=1 -run 'TestManifestsAreGeneratedFromChart|TestChartSchemaContainsNodeSchema' . -write

release: kubectl ## build archives, images, chart, SPDX document and checksums of VERSION into dist/; REGISTRY of the images adds install.yaml; DOWNLOADS, the URL of the directory with the archives, adds krew's manifest; SOURCE is the URL of the repository
	@rm -rf $(DIST)
	@$(call PACK,release) -out $(DIST) -chart $(CURDIR)/deploy/charts/devinfo -krew $(CURDIR)/deploy/krew/devinfo.yaml.tmpl -downloads '$(DOWNLOADS)' $(CURDIR)/{LICENSE,README.md,CHANGELOG.md}

release-check: ## build the release again from a copy of the repository with an empty build cache, and compare all bytes; ARCHES=amd64 compares only these archives
	deploy/pack/check $(DIST)

deps-peers: ## build cnitool and the reference plugins into bin/, for demo, test and bench
	cd test/peers && $(GO_BUILD) -o $(BIN)/ tool

# For a version that differs from go.mod, go resolves the module's requirements again.
deps-apiserver: ## build kube-apiserver and etcd into bin/, for test; K8S_VERSION=1.37.1 selects the version; the first build takes about 10 minutes
deps-apiserver: TO := $(BIN)
deps-apiserver: KUBERNETES := kube-apiserver
deps-cluster: ## build a control plane, kubelet, containerd and CNI plugins into bin/cluster, for test-vm-e2e; K8S_VERSION=1.37.1 selects the version; the first build takes about 25 minutes
deps-cluster: TO := $(BIN)/cluster
deps-cluster: KUBERNETES := kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl
deps-apiserver deps-cluster:
	@mkdir -p $(TO)
	cd test/apiserver/programs; export CGO_ENABLED=0 module=; \
	if [ -n "$(K8S_VERSION)" ]; then module="-mod=mod -modfile=$(BIN)/apiserver.mod"; cp go.sum $(BIN)/apiserver.sum; \
	sed -E '/indirect/{/etcd\/server|kubernetes v/!d}; s/v([01])\.36\.3/v\1.$(K8S_VERSION:1.%=%)/' go.mod >$(BIN)/apiserver.mod; fi; \
	version=$$(go list $$module -m -f "{{.Version}}" k8s.io/kubernetes); \
	go build $$module -trimpath -buildvcs=false -ldflags '-s -w' -o $(TO)/etcd go.etcd.io/etcd/server/v3; \
	go build $$module -trimpath -buildvcs=false -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$version" -o $(TO)/ $(KUBERNETES:%=k8s.io/kubernetes/cmd/%)

deps-cluster: deps-containerd
deps-containerd:
	@mkdir -p $(BIN)/cluster
	cd test/vm/containerd && go build -ldflags '-s -w' -tags no_btrfs,no_zfs,no_devmapper,no_tracing -o $(BIN)/cluster/ tool
	cd test/peers && $(GO_BUILD) -o $(BIN)/cluster/ tool
	cd test/peers/multus && $(GO_BUILD) -o $(BIN)/cluster/ tool
	@$(GO_BUILD) -o $(BIN)/cluster/ ./test/vm/onnode
	@$(GO_BUILD) -o $(BIN)/cluster/sriov ./test/vm/standin

# With an empty build cache, building all programs would take five times as long.
demo: ## show the plugin's work on this machine's network card, then on other devices
	@$(OURS) -o $(BIN)/ ./cmd/devinfo ./test/demo
	@cd test/peers && $(GO_BUILD) -o $(BIN)/ github.com/containernetworking/cni/cnitool github.com/containernetworking/plugins/plugins/main/macvlan
	@$(BIN)/demo -bin $(BIN)

# lint runs vet, so the tests need not: vet takes as long as compiling.
# Tests often wait for processes, so one package more than processors runs at a time.
GO_TEST := go test -count=1 -timeout 60m -vet=off -json -p $(shell expr $$(nproc) + 1)

test: build deps-peers ## run the tests; DEVINFO_NETNS=must fails tests if the machine permits no namespaces
	@{ $(GO_TEST) $(PACKAGES) || true; for module in $(MODULES); do (cd $$module; $(GO_TEST) ./... || true); done; } | go run ./test/report

test-projects: build ## run the tests with other projects' code: Multus, the scheduler, KubeVirt, Helm, Prometheus
	@for module in $(PROJECTS); do (cd $$module; $(GO_TEST) ./... || true); done | go run ./test/report

test-arm64: ## run the tests for arm64 that qemu-user can run, and list the others
	test/arm64

test-crash: deps-peers ## kill the plugin, fail its disk, or run another program at every system call; CRASH=sample tries some calls, SEED repeats a sample
	@DEVINFO_CRASH=$(CRASH) DEVINFO_CRASH_SEED=$(SEED) $(GO_TEST) -timeout 6h ./test/crash/... | go run ./test/report

# Without a version, ajv-cli would use the newest ajv, which may be stricter.
AJV := npx --yes -p ajv-cli@5.0.0 -p ajv@8.20.0 ajv compile --spec=draft2020 --strict=true

test-schemas: ## compile docs/schema with ajv in strict mode, as editors and CI do; needs npm
	@cd docs/schema && $(AJV) -s plugin.json && $(AJV) -s '!(plugin).json' -r plugin.json

# Rules of gosec that do not apply. G104: the ignored errors are those of printing, and of Close after reading.
# G304: the programs open files by variable paths, and config, store and grant check these paths. The programs
# in test/ and deploy/pack run commands of their user and write public files, so gosec skips them.
GOSEC_NOT := G104,G304

lint: export GOGC := 400
lint: ## run gofmt, vet, staticcheck, gosec and shellcheck (if installed), and check modules and known vulnerabilities
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w" $$unformatted; exit 1; fi
	go vet -tags vm,e2e,grpcnotrace $(PACKAGES)
	for module in $(MODULES) $(PROJECTS); do (cd $$module && go vet ./...); done
	go tool -modfile=test/lint/go.mod staticcheck -tags vm,e2e,grpcnotrace $(PACKAGES)
	@if command -v shellcheck >/dev/null; then shellcheck -S warning .ci/run .ci/nightly deploy/pack/check test/arm64 test/vm/vm test/vm/image test/vm/guest-init test/vm/test test/vm/cluster test/vm/node; \
	else echo "shellcheck is not installed, so the shell scripts are not checked"; fi
	go tool -modfile=test/lint/go.mod gosec -quiet -exclude=$(GOSEC_NOT) -exclude-dir=test -exclude-dir=deploy/pack -exclude-dir=pkg/host/link/linktest ./...
	@go list -deps -f '{{with .Module}}{{if and .Version (not .Replace)}}{{.Path}} {{.Version}}{{end}}{{end}}' ./cmd/... | sort -u | diff <(grep -v '^#' test/lint/modules.txt) - || \
	{ echo "the modules of the programs differ from test/lint/modules.txt: review them as described there"; exit 1; }
	@$(MAKE) --no-print-directory vulnerabilities

vulnerabilities: ## check the functions that the programs call for known vulnerabilities of Go and the modules; skipped if VULNDB (https://vuln.go.dev) cannot be reached
	@if curl -fsS -m 20 -o /dev/null '$(VULNDB)/index/db.json'; then go tool -modfile=test/lint/go.mod govulncheck -db '$(VULNDB)' ./cmd/...; \
	else echo "Known vulnerabilities are not checked, because $(VULNDB) cannot be reached. VULNDB=file:///... names a copy."; fi

bench: build ## measure times and sizes of the plugin, beside other plugins, and of the driver, and fail if a limit is exceeded; writes a table and a picture into BENCH (bin); FORMER is an older build below bin/ to compare with
	@$(GO_BUILD) -o $(BIN)/bench/ ./test/bench/...
	@cd test/peers && GOEXPERIMENT= $(GO_BUILD) -o $(BIN)/ tool # with Go's default collector
	@cd test/peers/multus && GOEXPERIMENT= $(GO_BUILD) -o $(BIN)/bench/ tool
	@$(BIN)/bench/bench -bin $(BIN) -out $(BENCH) -former '$(FORMER)' || missed=$$?; \
	go test -run '^$$' -bench 'RunPodSandbox|Prepare|ForeignPod|Metadata' -benchtime 200x ./pkg/dra || missed=$$?; \
	go test -run '^$$' -bench 'AHundredPodsAtOnce|FromEventToSlice' -benchtime 5x ./pkg/dra || missed=$$?; \
	go test -run '^$$' -bench 'Slices|Read' -benchtime 20x ./pkg/dra/devices/inventory || missed=$$?; exit $${missed:-0}

bench-scale: build ## compare kubectl devinfo with kubectl get on an API server with 3,000 pods and 1,000 claims, and fail if a limit is exceeded; SCALE=10 takes 12 GB; needs make deps-apiserver and kubectl
	@$(GO_BUILD) -o $(BIN)/scale ./test/scale
	@$(BIN)/scale -bin $(BIN) -scale $(SCALE)

test-load: deps-peers ## run ATTACHMENTS (1000) on one node with WORKERS (50), with random kills and GCs; SEED repeats a run
	@DEVINFO_CRASH_ATTACHMENTS=$(ATTACHMENTS) DEVINFO_CRASH_WORKERS=$(WORKERS) DEVINFO_CRASH_SEED=$(SEED) $(GO_TEST) -run '^TestLoadLosesNoState$$' ./test/crash | go run ./test/report

test-soak: ## run random events and faults against cni-dra-driver for SOAK (1h)
	MODEL_TIME=$(SOAK) go test -count=1 -timeout 0 -v -run TestPodsGetNetworksAndLeaveNothingDespiteFaults ./pkg/dra

test-fuzz: ## run each fuzz target for FUZZTIME (30s)
	@grep -rl '^func Fuzz' --include='*_test.go' . | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$$file"); do \
			echo "$$(dirname "$$file") $$target"; \
			(cd "$$(dirname "$$file")" && go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) .); \
		done; \
	done

test-attacker: deps-peers ## run 10,000 rounds against an attacker who swaps links, FIFOs and directories while the plugin runs
	DEVINFO_ROUNDS=10000 go test -count=1 -timeout 2h -v -run 'Swapped' ./test/kernel

# Without KUBECONFIG the program E2E_CLUSTER creates the cluster.
test-e2e: export E2E_CLUSTER ?= $(wildcard $(CURDIR)/../shared/cluster/cluster.sh)
test-e2e: build deps-peers ## test the driver, and devinfo with Multus, in the cluster of KUBECONFIG or in a new one: go doc ./test/e2e
	@$(GO_BUILD) -o $(BIN)/ ./test/e2e/pod-view
	@cd test/deploy && $(GO_BUILD) -o $(BIN)/ tool
	@go test -tags e2e,grpcnotrace -count=1 -timeout 3h -json ./test/e2e | go run ./test/report

test-vm: ## run the tests with real drivers for SR-IOV, vDPA and switchdev in QEMU
	test/vm/test

# The cluster has a network namespace of its own, so the tests run inside it (E2E_CLUSTER run).
test-vm-e2e: export E2E_CLUSTER := $(CURDIR)/test/vm/cluster
test-vm-e2e: export E2E_PATIENCE := 10
test-vm-e2e: ## test both agents in a cluster whose node, with kubelet, runtime and devices, runs in QEMU; needs make deps-cluster: test/vm/README.md
test-vm-e2e: build deps-peers
	@$(GO_BUILD) -o $(BIN)/ ./test/e2e/pod-view
	@cd test/deploy && $(GO_BUILD) -o $(BIN)/ tool
	@go test -tags e2e,grpcnotrace -ldflags '-s -w' -c -o $(BIN)/e2e.test ./test/e2e
	@$(E2E_CLUSTER) up >/dev/null
	@cd test/e2e && $(E2E_CLUSTER) run env -u KUBECONFIG go tool test2json -t -p devinfo-cni.io/test/e2e $(BIN)/e2e.test -test.v=test2json -test.timeout 3h -test.run '^TestRealDevices$$' | (cd $(CURDIR) && go run ./test/report)

install: build ## install the plugin into $(DESTDIR)/opt/cni/bin
	@mkdir -p $(DESTDIR)$(CNI_BIN)
	install -m 0755 $(BIN)/devinfo $(DESTDIR)$(CNI_BIN)/.devinfo.new
	mv -f $(DESTDIR)$(CNI_BIN)/.devinfo.new $(DESTDIR)$(CNI_BIN)/devinfo

clean: ## remove bin/ and dist/
	rm -rf $(BIN) $(DIST)
