package main

import (
	"bytes"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

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
	document, err := json.Read(bytes.NewReader(text))
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
