# "make" alone lists the verbs: each is a target with a "##" comment.

BIN := $(CURDIR)/bin
CNI_BIN := /opt/cni/bin
FUZZTIME := 30s

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build peers demo test lint bench fuzz vm-test install clean

GO_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w'

help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

build: ## the plugin into bin/, static and stripped
	$(GO_BUILD) -o $(BIN)/ ./cmd/...

peers: ## cnitool and the reference plugins into bin/, for demo, test and bench
	cd test/peers && $(GO_BUILD) -o $(BIN)/ tool

demo: build peers ## the main job on this machine's network card, then other devices
	@$(GO_BUILD) -o $(BIN)/demo ./test/demo
	@$(BIN)/demo -bin $(BIN)

test: build peers ## all tests; DEVINFO_NETNS=must makes those fail that lack namespaces
	@{ go test -count=1 -json ./... || true; cd test/peers; go test -count=1 -json ./... || true; } | go run ./test/report

lint: ## gofmt, vet, staticcheck; shellcheck if it is installed
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w" $$unformatted; exit 1; fi
	go vet ./... && go vet -tags vm ./test/vm ./pkg/link
	cd test/peers && go vet ./...
	go tool -modfile=test/lint/go.mod staticcheck ./... && go tool -modfile=test/lint/go.mod staticcheck -tags vm ./test/vm ./pkg/link
	@if command -v shellcheck >/dev/null; then shellcheck -S warning .ci/run docs/capture-host test/vm/vm test/vm/image test/vm/test; \
	else echo "shellcheck is not installed: the shell scripts are not looked at"; fi

bench: build peers ## times and sizes against other plugins, with the gates they must pass
	@$(GO_BUILD) -o $(BIN)/bench/ ./test/bench/...
	@$(BIN)/bench/bench -bin $(BIN)

fuzz: ## each fuzz target for FUZZTIME (30s)
	@grep -rl '^func Fuzz' --include='*_test.go' . | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$$file"); do \
			echo "$$(dirname "$$file") $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")"; \
		done; \
	done

vm-test: ## the tests that need real SR-IOV, vDPA and switchdev, in QEMU
	test/vm/test

install: build ## the plugin into $(DESTDIR)/opt/cni/bin
	@mkdir -p $(DESTDIR)$(CNI_BIN)
	install -m 0755 $(BIN)/devinfo $(DESTDIR)$(CNI_BIN)/.devinfo.new
	mv -f $(DESTDIR)$(CNI_BIN)/.devinfo.new $(DESTDIR)$(CNI_BIN)/devinfo

clean: ## bin/
	rm -rf $(BIN)
