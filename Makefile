# "make" alone lists the verbs: each is a target with a "##" comment.

BIN := $(CURDIR)/bin
CNI_BIN := /opt/cni/bin
FUZZTIME := 30s
SOAK := 1h
IMAGE := cluster.local/cni-dra-driver:1
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build peers apiserver image demo test lint bench soak fuzz e2e vm-test install clean

GO_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -funcalign=1 -X main.version=$(VERSION)'

help:
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

build: ## the programs into bin/, static and stripped
	$(GO_BUILD) -o $(BIN)/ ./cmd/... ./test/e2e/pod-view

image: build ## the image of cni-dra-driver, called IMAGE; needs buildah, but no daemon
	buildah build --tag $(IMAGE) --file deploy/cni-dra-driver/Containerfile $(BIN)

peers: ## cnitool and the reference plugins into bin/, for demo, test and bench
	cd test/peers && $(GO_BUILD) -o $(BIN)/ tool

apiserver: ## kube-apiserver and etcd into bin/, for test; about 10 minutes the first time
	cd test/apiserver/programs; export CGO_ENABLED=0; version=$$(go list -m -f "{{.Version}}" k8s.io/kubernetes); \
	go build -trimpath -buildvcs=false -ldflags '-s -w' -o $(BIN)/etcd go.etcd.io/etcd/server/v3; \
	go build -trimpath -buildvcs=false -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$version" -o $(BIN)/ k8s.io/kubernetes/cmd/kube-apiserver

demo: build peers ## the main job on this machine's network card, then other devices
	@$(GO_BUILD) -o $(BIN)/demo ./test/demo
	@$(BIN)/demo -bin $(BIN)

test: build peers ## all tests; DEVINFO_NETNS=must makes those fail that lack namespaces
	@{ go test -count=1 -json ./... || true; cd test/peers; go test -count=1 -json ./... || true; } | go run ./test/report

lint: ## gofmt, vet, staticcheck; shellcheck if it is installed
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w" $$unformatted; exit 1; fi
	go vet ./... && go vet -tags vm ./test/vm ./pkg/link && go vet -tags e2e ./test/e2e
	cd test/peers && go vet ./...
	go tool -modfile=test/lint/go.mod staticcheck ./... && go tool -modfile=test/lint/go.mod staticcheck -tags vm ./test/vm ./pkg/link && go tool -modfile=test/lint/go.mod staticcheck -tags e2e ./test/e2e
	@if command -v shellcheck >/dev/null; then shellcheck -S warning .ci/run test/vm/vm test/vm/image test/vm/test; \
	else echo "shellcheck is not installed: the shell scripts are not looked at"; fi

bench: build peers ## times and sizes against other plugins, and of the driver, with the gates they must pass
	@$(GO_BUILD) -o $(BIN)/bench/ ./test/bench/...
	@$(BIN)/bench/bench -bin $(BIN) || missed=$$?; \
	go test -run '^$$' -bench . -benchtime 200x ./pkg/dra; exit $${missed:-0}

soak: ## cni-dra-driver against all that may happen to it, for SOAK (1h)
	MODEL_TIME=$(SOAK) go test -count=1 -timeout 0 -v -run TestWhateverHappens ./pkg/dra

fuzz: ## each fuzz target for FUZZTIME (30s)
	@grep -rl '^func Fuzz' --include='*_test.go' . | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$$file"); do \
			echo "$$(dirname "$$file") $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")"; \
		done; \
	done

# Without KUBECONFIG the tests make a cluster by the program E2E_CLUSTER.
e2e: export E2E_CLUSTER ?= $(wildcard $(CURDIR)/../shared/cluster/cluster.sh)
e2e: build ## cni-dra-driver in the cluster of KUBECONFIG, or one that is made: go doc ./test/e2e
	@go test -tags e2e -count=1 -timeout 30m -json ./test/e2e | go run ./test/report

vm-test: ## the tests that need real SR-IOV, vDPA and switchdev, in QEMU
	test/vm/test

install: build ## the plugin into $(DESTDIR)/opt/cni/bin
	@mkdir -p $(DESTDIR)$(CNI_BIN)
	install -m 0755 $(BIN)/devinfo $(DESTDIR)$(CNI_BIN)/.devinfo.new
	mv -f $(DESTDIR)$(CNI_BIN)/.devinfo.new $(DESTDIR)$(CNI_BIN)/devinfo

clean: ## bin/
	rm -rf $(BIN)
