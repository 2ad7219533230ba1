# The program for owners of a NIC. test/vm/vm.mk includes this file.

.PHONY: try

try: ## build bin/devinfo-try, one static file that tries devinfo on a node's free VFs: docs/report.md
	@LDFLAGS='-X devinfo-cni.io/pkg/core/build.version=$(VERSION) -X devinfo-cni.io/pkg/core/build.revision=$(REVISION)' test/hardware/build $(BIN)/devinfo-try
	@ls -lh $(BIN)/devinfo-try
