# Images, archives and manifests. The Makefile includes this file.

DOWNLOADS :=
SOURCE :=
BUILDER :=
.PHONY: programs kubectl push registry generate release release-check

# All files have the commit's time.
PACK = cd deploy/pack && go run . $(1) -bin $(BIN) -version '$(VERSION)' -revision '$(REVISION)' \
	-time $(shell git log -1 --format=%ct 2>/dev/null || echo 0) -prefix '$(REGISTRY)' -source '$(SOURCE)' $(if $(BUILDER),-builder '$(BUILDER)')

programs:
	@rm -rf $(BIN)/linux_*
	@for arch in $(ARCHES); do GOOS=linux GOARCH=$$arch $(GO_BUILD) -o $(BIN)/linux_$$arch/ ./cmd/...; done

# Users run kubectl-devinfo on their own machines.
kubectl: programs
	@rm -rf $(BIN)/darwin_*
	@for arch in $(ARCHES); do GOOS=darwin GOARCH=$$arch $(GO_BUILD) -o $(BIN)/darwin_$$arch/ ./cmd/kubectl-devinfo; done

push: registry programs ## push the images to REGISTRY with the credentials of "docker login", each with an SPDX document and SLSA provenance as referrers; SOURCE and BUILDER are the URLs of the repository and the job for these
	@$(call PACK,images) -tag '$(TAG)' -out $(BIN) -push

registry:
	@[ '$(REGISTRY)' != cluster.local ] || { echo 'REGISTRY is not set: make push REGISTRY=registry.example.com/net TAG=v0.1.0'; exit 1; }

generate: ## write the manifests for kustomize from the chart, the node settings into the chart's schema, and its values into its README; run it after a change of any of these or of docs/schema/node.json
	cd test/deploy && go test -count=1 -run 'TestManifestsAreGeneratedFromChart|TestChartSchemaContainsNodeSchema' . -update

release: kubectl ## build archives, images, chart, SPDX document and checksums of VERSION into dist/; REGISTRY of the images adds install.yaml; DOWNLOADS, the URL of the directory with the archives, adds krew's manifest; SOURCE is the URL of the repository
	@rm -rf $(DIST)
	@$(call PACK,release) -out $(DIST) -chart $(CURDIR)/deploy/charts/devinfo -krew $(CURDIR)/deploy/krew/devinfo.yaml.tmpl -downloads '$(DOWNLOADS)' $(CURDIR)/{LICENSE,README.md,CHANGELOG.md}

release-check: ## build the release again from a copy of the repository with an empty build cache, and compare all bytes; ARCHES=amd64 compares only these archives
	deploy/pack/check $(DIST)
