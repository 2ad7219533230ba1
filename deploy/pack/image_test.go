package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

// unpack reads an OCI archive. It returns the index and its name.
func unpack(t *testing.T, archive string) (v1.ImageIndex, string) {
	t.Helper()
	f, err := os.Open(archive)
	must(t, err)
	defer f.Close()
	dir := t.TempDir()
	_, files := untar(t, f)
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	outer, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%v, %v", manifest, err)
	}
	named := manifest.Manifests[0]
	index, err := outer.ImageIndex(named.Digest)
	must(t, err)
	return index, named.Annotations["io.containerd.image.name"]
}

func TestImageHasBothArchitectures(t *testing.T) {
	index, name := unpack(t, filepath.Join(pack(t, programs(t), "-prefix=registry.example.com/net"), "devinfo-agent-v1.2.3.oci.tar"))
	if want := "registry.example.com/net/devinfo-agent:v1.2.3"; name != want {
		t.Errorf("name %s, want %s", name, want)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	must(t, err)
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		image, err := index.Image(m.Digest)
		must(t, err)
		looks(t, image, m.Platform.Architecture)
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("platforms %q, want %q", platforms, want)
	}
}

// looks checks the image of one architecture.
func looks(t *testing.T, image v1.Image, arch string) {
	t.Helper()
	config, err := image.ConfigFile()
	must(t, err)
	if config.Architecture != arch || config.OS != "linux" || !slices.Equal(config.Config.Entrypoint, []string{"/devinfo-agent"}) {
		t.Errorf("%s: %s/%s %q", arch, config.OS, config.Architecture, config.Config.Entrypoint)
	}
	for label, want := range map[string]string{
		"created": "2025-06-15T15:06:40Z", "title": "devinfo-agent", "version": "v1.2.3", "revision": "abc", "source": "https://example.com/devinfo", "licenses": "Apache-2.0",
	} {
		if got := config.Config.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("%s: label %s is %q, want %q", arch, label, got, want)
		}
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%s: %d layers, %v", arch, len(layers), err)
	}
	plain, err := layers[0].Uncompressed()
	must(t, err)
	defer plain.Close()
	var got []string
	list, _ := untar(t, plain)
	for _, h := range list {
		got = append(got, fmt.Sprintf("%o %d:%d %s", h.Mode, h.Uid, h.Gid, h.Name))
	}
	want := []string{"755 0:0 devinfo", "755 0:0 devinfo-agent", "755 0:0 devinfoctl", "444 0:0 sbom.spdx.json"}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", arch, got, want)
	}
}

func TestImagesArePushedWithoutDaemon(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true))) // on loopback
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	pack(t, programs(t), "-prefix="+host+"/net", "-builder=https://ci.example.com/7", "-push")
	ref, err := name.ParseReference(host + "/net/cni-dra-driver:v1.2.3")
	must(t, err)
	index, err := remote.Index(ref)
	must(t, err)
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	digest, err := index.Digest()
	must(t, err)
	documents := map[string]string{}
	for file, kind := range map[string]string{"sbom.spdx.json": "application/spdx+json", "provenance.json": "application/vnd.in-toto+json"} {
		documents[file] = referrer(t, ref.Context().Digest(digest.String()), kind, file)
	}
	bill := documents["sbom.spdx.json"]
	if !strings.Contains(bill, `"linux_arm64/cni-dra-driver"`) || !strings.Contains(bill, `"linux_amd64/cni-dra-driver"`) {
		t.Error(bill)
	}
	var origin object
	must(t, json.Unmarshal([]byte(documents["provenance.json"]), &origin))
	want := object{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://slsa.dev/provenance/v1",
		"subject": []any{object{"name": host + "/net/cni-dra-driver", "digest": object{"sha256": digest.Hex}}},
		"predicate": object{
			"buildDefinition": object{
				"buildType": "tag:devinfo-cni.io,2026:deploy/pack/v1",
				"externalParameters": object{
					"source": "https://example.com/devinfo", "revision": "abc",
					"command": "make push REGISTRY='" + host + "/net' TAG='v1.2.3' VERSION='v1.2.3' SOURCE='https://example.com/devinfo' ARCHES='amd64 arm64'",
				},
				"resolvedDependencies": []any{
					object{"name": "source", "uri": "git+https://example.com/devinfo@abc", "digest": object{"gitCommit": "abc"}},
					object{"name": "sbom.spdx.json", "mediaType": "application/spdx+json", "digest": object{"sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(bill)))}},
				},
			},
			"runDetails": object{"builder": object{"id": "https://ci.example.com/7", "version": object{"go": runtime.Version()}}},
		},
	}
	if !reflect.DeepEqual(origin, want) {
		t.Errorf("%+v\nwant %+v", origin, want)
	}
}

// referrer returns the document of this kind that refers to an image in a registry.
func referrer(t *testing.T, image name.Digest, kind, file string) string {
	t.Helper()
	referrers, err := remote.Referrers(image, remote.WithFilter("artifactType", kind))
	must(t, err)
	list, err := referrers.IndexManifest()
	if err != nil || len(list.Manifests) != 1 || list.Manifests[0].ArtifactType != kind {
		t.Fatalf("%+v, %v", list, err)
	}
	document, err := remote.Image(image.Context().Digest(list.Manifests[0].Digest.String()))
	must(t, err)
	manifest, err := document.Manifest()
	if err != nil || len(manifest.Layers) != 1 || manifest.Layers[0].Annotations["org.opencontainers.image.title"] != file {
		t.Fatalf("%+v, %v", manifest, err)
	}
	layer, err := remote.Layer(image.Context().Digest(manifest.Layers[0].Digest.String()))
	must(t, err)
	text, err := layer.Compressed()
	must(t, err)
	defer text.Close()
	read, err := io.ReadAll(text)
	must(t, err)
	return string(read)
}

// The test binary itself is a program with modules.
func TestSPDXDocumentListsEachModuleOnce(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok || len(info.Deps) < 3 {
		t.Fatalf("the test's own build information: %v", info)
	}
	stdlib, _, _ := strings.Cut(info.GoVersion[len("go"):], "-") // experiments are not part of the version
	want := map[string]string{"stdlib": stdlib, "one": "v1", "two": "v1"}
	for _, dep := range info.Deps {
		want[dep.Path] = dep.Version
	}
	ours := &debug.Module{Path: "devinfo-cni.io/devinfo", Version: "v0.0.0", Replace: &debug.Module{Path: "./devinfo"}}
	more := *info
	more.Deps = append(slices.Clone(info.Deps), ours)
	r := release{version: "v1", time: time.Unix(commit, 0).UTC()}
	text, err := r.sbom("test", []program{{name: "one", arch: "amd64", info: info}, {name: "two", arch: "amd64", info: &more}})
	must(t, err)
	document, err := spdxjson.Read(bytes.NewReader(text))
	must(t, err)
	if err := spdxlib.ValidateDocument(document); err != nil {
		t.Error(err)
	}
	got := map[string]string{}
	for _, p := range document.Packages {
		if got[p.PackageName] != "" {
			t.Errorf("%s is there twice", p.PackageName)
		}
		got[p.PackageName] = p.PackageVersion
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	dependencies := 0
	for _, r := range document.Relationships {
		if r.Relationship == "DEPENDS_ON" {
			dependencies++
		}
	}
	if want := 2 * (len(info.Deps) + 1); dependencies != want {
		t.Errorf("%d dependencies, want %d", dependencies, want)
	}
}
