# "make" alone lists the verbs: each is a target with a "##" comment.

BIN := $(CURDIR)/bin
CNI_BIN := /opt/cni/bin
FUZZTIME := 30s
CRASH := all
ATTACHMENTS := 1000
WORKERS := 50
SEED := 0
SOAK := 1h
IMAGE := cluster.local/cni-dra-driver:1
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build peers apiserver image demo test crash lint bench load soak fuzz hostile e2e vm-test install clean

# The library is a module of its own, which ./... leaves out.
PACKAGES := ./... devinfo-cni.io/devinfo/...

GO_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'

help:
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

build: ## the programs into bin/, static and stripped
	$(GO_BUILD) -o $(BIN)/ ./cmd/... ./test/e2e/pod-view

image: build ## the image of cni-dra-driver, called IMAGE; needs buildah, but no daemon
	buildah build --tag $(IMAGE) --file deploy/cni-dra-driver/Containerfile $(BIN)

peers: ## cnitool and the reference plugins into bin/, for demo, test and bench
	cd test/peers && $(GO_BUILD) -o $(BIN)/ tool

# For another version than that of its go.mod the module's requirements are found anew.
apiserver: ## kube-apiserver and etcd into bin/, for test; K8S_VERSION=1.37.1 chooses; about 10 minutes the first time
	@mkdir -p $(BIN)
	cd test/apiserver/programs; export CGO_ENABLED=0 module=; \
	if [ -n "$(K8S_VERSION)" ]; then module="-mod=mod -modfile=$(BIN)/apiserver.mod"; cp go.sum $(BIN)/apiserver.sum; \
	sed -E '/indirect/{/etcd\/server|kubernetes v/!d}; s/v([01])\.36\.3/v\1.$(K8S_VERSION:1.%=%)/' go.mod >$(BIN)/apiserver.mod; fi; \
	version=$$(go list $$module -m -f "{{.Version}}" k8s.io/kubernetes); \
	go build $$module -trimpath -buildvcs=false -ldflags '-s -w' -o $(BIN)/etcd go.etcd.io/etcd/server/v3; \
	go build $$module -trimpath -buildvcs=false -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$version" -o $(BIN)/ k8s.io/kubernetes/cmd/kube-apiserver

demo: build peers ## the main job on this machine's network card, then other devices
	@$(GO_BUILD) -o $(BIN)/demo ./test/demo
	@$(BIN)/demo -bin $(BIN)

test: build peers ## all tests; DEVINFO_NETNS=must makes those fail that lack namespaces
	@{ go test -count=1 -json $(PACKAGES) || true; cd test/peers; go test -count=1 -json ./... || true; } | go run ./test/report

crash: peers ## the plugin killed, and its disk failing, at every change; CRASH=sample for some, SEED repeats
	@DEVINFO_CRASH=$(CRASH) DEVINFO_CRASH_SEED=$(SEED) go test -count=1 -timeout 60m -json ./test/crash/... | go run ./test/report

# What gosec is not asked: G104, errors that are dropped (those of Close where nothing
# was written, and of printing), and G304, files that are opened by a variable, which is
# what these programs do; who may choose the path is settled by config, store and grant.
# Programs of test/ run what they are told to, as their users.
GOSEC_NOT := G104,G304

lint: ## gofmt, vet, staticcheck, gosec, the modules; shellcheck and govulncheck where they can be had
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w" $$unformatted; exit 1; fi
	go vet $(PACKAGES) && go vet -tags vm ./test/vm ./pkg/link && go vet -tags e2e ./test/e2e
	cd test/peers && go vet ./...
	go tool -modfile=test/lint/go.mod staticcheck $(PACKAGES) && go tool -modfile=test/lint/go.mod staticcheck -tags vm ./test/vm ./pkg/link && go tool -modfile=test/lint/go.mod staticcheck -tags e2e ./test/e2e
	@if command -v shellcheck >/dev/null; then shellcheck -S warning .ci/run test/vm/vm test/vm/image test/vm/test; \
	else echo "shellcheck is not installed: the shell scripts are not looked at"; fi
	go tool -modfile=test/lint/go.mod gosec -quiet -exclude=$(GOSEC_NOT) -exclude-dir=test -exclude-dir=pkg/link/linktest ./...
	@go list -deps -f '{{with .Module}}{{if and .Version (not .Replace)}}{{.Path}} {{.Version}}{{end}}{{end}}' ./cmd/... | sort -u | diff <(grep -v '^#' test/lint/modules.txt) - || \
	{ echo "the modules of the programs are others than test/lint/modules.txt says: review them as is said there"; exit 1; }
	@if [ -n "$(VULNDB)" ]; then go tool -modfile=test/lint/go.mod govulncheck -db "$(VULNDB)" ./cmd/...; \
	else echo "no known vulnerabilities are looked for: VULNDB=https://vuln.go.dev"; fi

bench: build peers ## times and sizes against other plugins, and of the driver, with the gates they must pass
	@$(GO_BUILD) -o $(BIN)/bench/ ./test/bench/...
	@$(BIN)/bench/bench -bin $(BIN) || missed=$$?; \
	go test -run '^$$' -bench . -benchtime 200x ./pkg/dra; exit $${missed:-0}

load: build peers ## ATTACHMENTS (1000) on one node by WORKERS (50), killed and collected at random; SEED repeats
	@$(GO_BUILD) -o $(BIN)/load ./test/load
	@$(BIN)/load -bin $(BIN) -attachments $(ATTACHMENTS) -workers $(WORKERS) -seed $(SEED)

soak: ## cni-dra-driver against all that may happen to it, for SOAK (1h)
	MODEL_TIME=$(SOAK) go test -count=1 -timeout 0 -v -run TestWhateverHappens ./pkg/dra

fuzz: ## each fuzz target for FUZZTIME (30s)
	@grep -rl '^func Fuzz' --include='*_test.go' . | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$$file"); do \
			echo "$$(dirname "$$file") $$target"; \
			(cd "$$(dirname "$$file")" && go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) .); \
		done; \
	done

hostile: peers ## 10,000 rounds against one who swaps links, FIFOs and directories below the plugin
	DEVINFO_ROUNDS=10000 go test -count=1 -timeout 2h -v -run 'Swapped' ./test/kernel

# Without KUBECONFIG the tests make a cluster by the program E2E_CLUSTER.
e2e: export E2E_CLUSTER ?= $(wildcard $(CURDIR)/../shared/cluster/cluster.sh)
e2e: build peers ## cni-dra-driver in the cluster of KUBECONFIG, or one that is made: go doc ./test/e2e
	@go test -tags e2e -count=1 -timeout 3h -json ./test/e2e | go run ./test/report

vm-test: ## the tests that need real SR-IOV, vDPA and switchdev, in QEMU
	test/vm/test

install: build ## the plugin into $(DESTDIR)/opt/cni/bin
	@mkdir -p $(DESTDIR)$(CNI_BIN)
	install -m 0755 $(BIN)/devinfo $(DESTDIR)$(CNI_BIN)/.devinfo.new
	mv -f $(DESTDIR)$(CNI_BIN)/.devinfo.new $(DESTDIR)$(CNI_BIN)/devinfo

clean: ## bin/
	rm -rf $(BIN)
