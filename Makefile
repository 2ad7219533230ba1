# "make" alone lists the targets of this file, "make help-all" those of the included files too.

BIN := $(CURDIR)/bin
DIST := $(CURDIR)/dist
CNI_BIN := /opt/cni/bin
ARCHES := amd64 arm64
REGISTRY := cluster.local
TAG := 1
CRASH := all
E2E := node
BENCH := plugin
SEED := 0
FORMER :=
VULNDB := https://vuln.go.dev
VERSION := $(if $(filter command,$(origin TAG)),$(TAG),$(shell git describe --tags --always --dirty 2>/dev/null))
REVISION := $(shell git rev-parse HEAD 2>/dev/null)

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help help-all build image demo test-short test test-projects test-crash lint bench test-e2e test-vm install clean

# The library is a separate module, so ./... does not include it.
PACKAGES := ./... devinfo-cni.io/devinfo/...
# Modules of their own, whose go.mod says why: tests with other projects' code, and the program that builds images.
PROJECTS := test/kubevirt test/deploy deploy/pack

# Programs, tests, and programs that tests build have the same flags, so that shared packages are compiled once.
# grpcnotrace: gRPC's traces, which we do not use, import html/template. It may call any method of any type, so
# the linker would keep all methods, a third of cni-dra-driver.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath -buildvcs=% -tags=%,$(shell go env GOFLAGS)) -trimpath -buildvcs=false -tags=grpcnotrace)

GO_BUILD := go build -ldflags '-s -w -X devinfo-cni.io/pkg/core/build.version=$(VERSION) -X devinfo-cni.io/pkg/core/build.revision=$(REVISION)'

# lint runs vet, so the tests need not: vet takes as long as compiling.
# Tests often wait for processes, so one package more than processors runs at a time.
GO_TEST := go test -count=1 -timeout 60m -vet=off -json -p $(shell expr $$(nproc) + 1)
# Prints the packages, the output of failed tests, and the skipped tests with their reasons. It fails if no test ran.
REPORT := go tool -modfile=$(CURDIR)/test/lint/go.mod gotestsum --raw-command --format standard-quiet \
	--post-run-command 'sh -c "[ $$TESTS_TOTAL -gt $$TESTS_SKIPPED ] || { echo no test ran; exit 1; }"' -- cat

include deploy/pack/release.mk test/test.mk test/apiserver/apiserver.mk test/vm/vm.mk

LIST = sed -n 's/^\([a-z0-9-]*\):.*\#\# \(.*\)/make \1\t\2/p' $(1) | expand -t 20

help:
	@$(call LIST,$(firstword $(MAKEFILE_LIST)))

help-all: ## list all targets, also for releases, clusters, long tests
	@$(call LIST,$(MAKEFILE_LIST))

build: ## build the programs into bin/, static and stripped
	$(GO_BUILD) -o $(BIN)/ ./cmd/...

# With an empty build cache, building all of deps-peers would take longer.
demo: ## show the plugin at work on a NIC and on other devices
	@$(GO_BUILD) -o $(BIN)/ github.com/containernetworking/cni/cnitool github.com/containernetworking/plugins/plugins/main/macvlan
	@DEVINFO_NETNS=must go test -count=1 -v ./test/demo

test-short: ## run the tests that need no programs, namespaces or root
	go test -short $(PACKAGES)

test: build deps-peers ## run the tests; DEVINFO_NETNS=must: fail without namespaces
	@$(GO_TEST) $(PACKAGES) | $(REPORT)

test-projects: build ## test with KubeVirt, Helm, Prometheus, a registry
	@(for module in $(PROJECTS); do (cd $$module && $(GO_TEST) ./...) || failed=1; done; exit $${failed:-0}) | $(REPORT)

test-crash: crash-$(CRASH) ## kill at every system call; CRASH=sample, faults, load, attacker, soak, fuzz

lint: export GOGC := 400
lint: ## check code, scripts, modules, known vulnerabilities
	test/lint/run '$(PACKAGES)' '$(PROJECTS)' '$(VULNDB)'

bench: bench-$(BENCH) ## compare with other plugins; BENCH=driver, pods: measure these

test-e2e: e2e-$(E2E) ## test both agents in a cluster of one node; E2E=qemu: in QEMU, with devices

test-vm: ## test SR-IOV, vDPA, switchdev with real drivers in QEMU
	test/vm/test

image: programs ## build both images REGISTRY/NAME:TAG as archives in bin/
	@$(call PACK,images) -tag '$(TAG)' -out $(BIN)

install: build ## install the plugin into $(DESTDIR)/opt/cni/bin
	@mkdir -p $(DESTDIR)$(CNI_BIN)
	install -m 0755 $(BIN)/devinfo $(DESTDIR)$(CNI_BIN)/.devinfo.new
	mv -f $(DESTDIR)$(CNI_BIN)/.devinfo.new $(DESTDIR)$(CNI_BIN)/devinfo

clean: ## remove bin/ and dist/
	rm -rf $(BIN) $(DIST)
