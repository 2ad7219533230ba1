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

# The library is a module of its own, which ./... leaves out.
PACKAGES := ./... devinfo-cni.io/devinfo/...
# Modules of their own with tests: the programs do not need what they import. Some import other
# projects: Multus, the scheduler, KubeVirt, Helm, Prometheus, a registry.
MODULES := test/peers test/schema
PROJECTS := test/peers/multus test/scheduler test/kubevirt test/deploy deploy/pack

# Everything is compiled in one way, programs, tests and those that tests build, so that what
# several import is compiled once. Ours are run for a moment, most of them: Go 1.26's garbage
# collector, which such a program never needs, has it touch 44 pages of memory more (of 350);
# a Go that has no other has that.
# grpcnotrace: gRPC's traces, which nobody asks for, bring html/template, which may call any method
# of any type. So the linker would keep them all, a third of cni-dra-driver.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath -buildvcs=% -tags=%,$(shell go env GOFLAGS)) -trimpath -buildvcs=false -tags=grpcnotrace)
export GOEXPERIMENT := $(shell GOEXPERIMENT=nogreenteagc go env GOVERSION >/dev/null 2>&1 && echo nogreenteagc)

GO_BUILD := go build -ldflags '-s -w -X devinfo-cni.io/pkg/build.version=$(VERSION) -X devinfo-cni.io/pkg/build.revision=$(REVISION)'

# Segments begin at 32 KiB: by pages, 80 pages more of the file are mapped (make bench: peak RSS), and
# by 128 KiB it is no less, but the file is up to 0.3 MB longer (binary).
OURS = $(GO_BUILD:'=) -R 0x8000'

# The targets that most people need; help-all lists the others, each a rule with a "##" comment.
TARGETS := build demo test lint image push install test-e2e bench help-all

help:
	@$(MAKE) --no-print-directory help-all | grep -E '^make ($(subst $() ,|,$(TARGETS))) '

help-all: ## all targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24

build: ## the programs into bin/, static and stripped
	$(OURS) -o $(BIN)/ ./cmd/...

programs:
	@rm -rf $(BIN)/linux_*
	@for arch in $(ARCHES); do GOOS=linux GOARCH=$$arch $(OURS) -o $(BIN)/linux_$$arch/ ./cmd/...; done

# People's own machines.
kubectl: programs
	@rm -rf $(BIN)/darwin_*
	@for arch in $(ARCHES); do GOOS=darwin GOARCH=$$arch $(GO_BUILD) -o $(BIN)/darwin_$$arch/ ./cmd/kubectl-devinfo; done

# All files are of the commit's time.
PACK = cd deploy/pack && go run . $(1) -bin $(BIN) -version '$(VERSION)' -revision '$(REVISION)' \
	-time $(shell git log -1 --format=%ct 2>/dev/null || echo 0) -prefix '$(REGISTRY)' -source '$(SOURCE)' $(if $(BUILDER),-builder '$(BUILDER)')

image: programs ## both agents' images, REGISTRY/NAME:TAG for ARCHES, as OCI archives in bin/; no daemon
	@$(call PACK,images) -tag '$(TAG)' -out $(BIN)

push: registry programs ## the same, and into REGISTRY, with the credentials of "docker login", and an SPDX document and the SLSA provenance of each as its referrers; SOURCE and BUILDER are the URLs of repository and job that they name
	@$(call PACK,images) -tag '$(TAG)' -out $(BIN) -push

registry:
	@[ '$(REGISTRY)' != cluster.local ] || { echo 'where to? make push REGISTRY=registry.example.com/net TAG=v0.1.0'; exit 1; }

generate: ## those of deploy/ that the chart makes, for kustomize, and the settings in its schema: after a change of the chart or of docs/schema/node.json
	cd test/deploy && go test -count=1 -run 'TestManifestsAreGeneratedFromChart|TestChartSchemaContainsNodeSchema' . -write

release: kubectl ## archives, images, chart, SPDX document and checksums of VERSION into dist/; install.yaml if REGISTRY has the images; krew's manifest if DOWNLOADS is the URL they will be below; chart and manifest name SOURCE, the URL of the repository
	@rm -rf $(DIST)
	@$(call PACK,release) -out $(DIST) -chart $(CURDIR)/deploy/charts/devinfo -krew $(CURDIR)/deploy/krew/devinfo.yaml.tmpl -downloads '$(DOWNLOADS)' $(CURDIR)/{LICENSE,README.md,CHANGELOG.md}

release-check: ## the release once more, from a copy elsewhere and an empty build cache: the same bytes? ARCHES=amd64 looks at those archives only
	deploy/pack/check $(DIST)

deps-peers: ## cnitool and the reference plugins into bin/, for demo, test and bench
	cd test/peers && $(GO_BUILD) -o $(BIN)/ tool

# For another version than that of its go.mod the module's requirements are found anew.
deps-apiserver: ## kube-apiserver and etcd into bin/, for test; K8S_VERSION=1.37.1 chooses; about 10 minutes the first time
deps-apiserver: TO := $(BIN)
deps-apiserver: KUBERNETES := kube-apiserver
deps-cluster: ## a control plane, kubelet, containerd and CNI plugins into bin/cluster, for test-vm-e2e; K8S_VERSION=1.37.1 chooses; about 25 minutes the first time
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

# All programs would take five times the time of these from an empty build cache.
demo: ## the main job on this machine's network card, then other devices
	@$(OURS) -o $(BIN)/ ./cmd/devinfo ./test/demo
	@cd test/peers && $(GO_BUILD) -o $(BIN)/ github.com/containernetworking/cni/cnitool github.com/containernetworking/plugins/plugins/main/macvlan
	@$(BIN)/demo -bin $(BIN)

# lint vets, with all that is imported, which takes as long as to compile it.
# Tests wait for processes as much as they compute: three packages at a time on two processors.
GO_TEST := go test -count=1 -timeout 60m -vet=off -json -p $(shell expr $$(nproc) + 1)

test: build deps-peers ## the tests; DEVINFO_NETNS=must makes those fail that lack namespaces
	@{ $(GO_TEST) $(PACKAGES) || true; for module in $(MODULES); do (cd $$module; $(GO_TEST) ./... || true); done; } | go run ./test/report

test-projects: build ## those with other projects' code: Multus, the scheduler, KubeVirt, Helm, Prometheus
	@for module in $(PROJECTS); do (cd $$module; $(GO_TEST) ./... || true); done | go run ./test/report

test-arm64: ## the tests for arm64 that qemu-user can run; lists those that it cannot
	test/arm64

test-crash: deps-peers ## the plugin killed, its disk failing, and others at work, at every call; CRASH=sample for some, SEED repeats
	@DEVINFO_CRASH=$(CRASH) DEVINFO_CRASH_SEED=$(SEED) $(GO_TEST) -timeout 6h ./test/crash/... | go run ./test/report

# ajv-cli alone would take the newest ajv, which may be stricter.
AJV := npx --yes -p ajv-cli@5.0.0 -p ajv@8.20.0 ajv compile --spec=draft2020 --strict=true

test-schemas: ## docs/schema by ajv, strictly, as editors and CI read them; needs npm
	@cd docs/schema && $(AJV) -s plugin.json && $(AJV) -s '!(plugin).json' -r plugin.json

# What gosec is not asked: G104, errors that are dropped (those of Close where nothing
# was written, and of printing), and G304, files that are opened by a variable, which is
# what these programs do; who may choose the path is settled by config, store and grant.
# Programs of test/ and deploy/pack run what they are told to, as their users, and write
# what everybody may read.
GOSEC_NOT := G104,G304

lint: export GOGC := 400
lint: ## gofmt, vet, staticcheck, gosec, the modules, vulnerabilities; shellcheck where it can be had
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w" $$unformatted; exit 1; fi
	go vet -tags vm,e2e,grpcnotrace $(PACKAGES)
	for module in $(MODULES) $(PROJECTS); do (cd $$module && go vet ./...); done
	go tool -modfile=test/lint/go.mod staticcheck -tags vm,e2e,grpcnotrace $(PACKAGES)
	@if command -v shellcheck >/dev/null; then shellcheck -S warning .ci/run .ci/nightly deploy/pack/check test/arm64 test/vm/vm test/vm/image test/vm/guest-init test/vm/test test/vm/cluster test/vm/node; \
	else echo "shellcheck is not installed: the shell scripts are not looked at"; fi
	go tool -modfile=test/lint/go.mod gosec -quiet -exclude=$(GOSEC_NOT) -exclude-dir=test -exclude-dir=deploy/pack -exclude-dir=pkg/link/linktest ./...
	@go list -deps -f '{{with .Module}}{{if and .Version (not .Replace)}}{{.Path}} {{.Version}}{{end}}{{end}}' ./cmd/... | sort -u | diff <(grep -v '^#' test/lint/modules.txt) - || \
	{ echo "the modules of the programs are others than test/lint/modules.txt says: review them as is said there"; exit 1; }
	@$(MAKE) --no-print-directory vulnerabilities

vulnerabilities: ## those that are known of the modules and of Go, in what the programs call; says so where VULNDB (https://vuln.go.dev) cannot be reached
	@if curl -fsS -m 20 -o /dev/null '$(VULNDB)/index/db.json'; then go tool -modfile=test/lint/go.mod govulncheck -db '$(VULNDB)' ./cmd/...; \
	else echo "Known vulnerabilities are not looked for: $(VULNDB) cannot be reached. VULNDB=file:///... names a copy."; fi

bench: build ## times and sizes against other plugins, and of the driver, with the gates they must pass; FORMER names an older build below bin/; a table and a picture in BENCH (bin)
	@$(GO_BUILD) -o $(BIN)/bench/ ./test/bench/...
	@cd test/peers && GOEXPERIMENT= $(GO_BUILD) -o $(BIN)/ tool # as others build them
	@cd test/peers/multus && GOEXPERIMENT= $(GO_BUILD) -o $(BIN)/bench/ tool
	@$(BIN)/bench/bench -bin $(BIN) -out $(BENCH) -former '$(FORMER)' || missed=$$?; \
	go test -run '^$$' -bench 'RunPodSandbox|Prepare|ForeignPod|Metadata' -benchtime 200x ./pkg/dra || missed=$$?; \
	go test -run '^$$' -bench 'AHundredPodsAtOnce|FromEventToSlice' -benchtime 5x ./pkg/dra || missed=$$?; \
	go test -run '^$$' -bench 'Slices|Read' -benchtime 20x ./pkg/dra/devices/inventory || missed=$$?; exit $${missed:-0}

bench-scale: build ## kubectl devinfo beside kubectl get on an API server with 3,000 pods and 1,000 claims, with the gates it must pass; SCALE=10 takes 12 GB; needs make deps-apiserver, and kubectl
	@$(GO_BUILD) -o $(BIN)/scale ./test/scale
	@$(BIN)/scale -bin $(BIN) -scale $(SCALE)

test-load: deps-peers ## ATTACHMENTS (1000) on one node by WORKERS (50), killed and collected at random; SEED repeats
	@DEVINFO_CRASH_ATTACHMENTS=$(ATTACHMENTS) DEVINFO_CRASH_WORKERS=$(WORKERS) DEVINFO_CRASH_SEED=$(SEED) $(GO_TEST) -run '^TestLoadLosesNoState$$' ./test/crash | go run ./test/report

test-soak: ## run random events and faults against cni-dra-driver for SOAK (1h)
	MODEL_TIME=$(SOAK) go test -count=1 -timeout 0 -v -run TestPodsGetNetworksAndLeaveNothingDespiteFaults ./pkg/dra

test-fuzz: ## each fuzz target for FUZZTIME (30s)
	@grep -rl '^func Fuzz' --include='*_test.go' . | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$$file"); do \
			echo "$$(dirname "$$file") $$target"; \
			(cd "$$(dirname "$$file")" && go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) .); \
		done; \
	done

test-attacker: deps-peers ## 10,000 rounds against one who swaps links, FIFOs and directories below the plugin
	DEVINFO_ROUNDS=10000 go test -count=1 -timeout 2h -v -run 'Swapped' ./test/kernel

# Without KUBECONFIG the tests make a cluster by the program E2E_CLUSTER.
test-e2e: export E2E_CLUSTER ?= $(wildcard $(CURDIR)/../shared/cluster/cluster.sh)
test-e2e: build deps-peers ## the driver, and devinfo with Multus, in the cluster of KUBECONFIG, or one that is made: go doc ./test/e2e
	@$(GO_BUILD) -o $(BIN)/ ./test/e2e/pod-view
	@cd test/deploy && $(GO_BUILD) -o $(BIN)/ tool
	@go test -tags e2e,grpcnotrace -count=1 -timeout 3h -json ./test/e2e | go run ./test/report

test-vm: ## the tests that need real SR-IOV, vDPA and switchdev, in QEMU
	test/vm/test

# The API server and what is below it are elsewhere than in the network of who calls make.
test-vm-e2e: export E2E_CLUSTER := $(CURDIR)/test/vm/cluster
test-vm-e2e: export E2E_PATIENCE := 10
test-vm-e2e: ## both agents on the node of a cluster, whose kubelet, runtime and devices are in QEMU; needs make deps-cluster: test/vm/README.md
test-vm-e2e: build deps-peers
	@$(GO_BUILD) -o $(BIN)/ ./test/e2e/pod-view
	@cd test/deploy && $(GO_BUILD) -o $(BIN)/ tool
	@go test -tags e2e,grpcnotrace -ldflags '-s -w' -c -o $(BIN)/e2e.test ./test/e2e
	@$(E2E_CLUSTER) up >/dev/null
	@cd test/e2e && $(E2E_CLUSTER) run env -u KUBECONFIG go tool test2json -t -p devinfo-cni.io/test/e2e $(BIN)/e2e.test -test.v=test2json -test.timeout 3h -test.run '^TestRealDevices$$' | (cd $(CURDIR) && go run ./test/report)

install: build ## the plugin into $(DESTDIR)/opt/cni/bin
	@mkdir -p $(DESTDIR)$(CNI_BIN)
	install -m 0755 $(BIN)/devinfo $(DESTDIR)$(CNI_BIN)/.devinfo.new
	mv -f $(DESTDIR)$(CNI_BIN)/.devinfo.new $(DESTDIR)$(CNI_BIN)/devinfo

clean: ## bin/ and dist/
	rm -rf $(BIN) $(DIST)
