package build_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/test/difftest"
)

func TestBuildPrintsAsOneLine(t *testing.T) {
	noted := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"},
	}}
	for want, i := range map[string]build.Info{
		"v0.1.0, commit 0123456789ab (dirty), go1.26.0": build.Of(noted), "unknown version": {}, "(devel), commit 01": {Version: "(devel)", Revision: "01"},
	} {
		difftest.Equal(t, i.String(), want)
	}
}

func TestUnknownRevisionIsSameAsAny(t *testing.T) {
	a, b := build.Info{Revision: "a"}, build.Info{Revision: "b"}
	if a.Same(b) || a.Same(build.Info{Revision: "a", Dirty: true}) || !a.Same(build.Info{}) || !(build.Info{}).Same(b) || !a.Same(a) {
		t.Error("it differs")
	}
}

// The linker does not report a variable that it cannot find, so a typing error in the Makefile would go
// unnoticed.
func TestMakefileSetsVersionAndCommit(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it builds a program")
	}
	flags := regexp.MustCompile(`-ldflags '([^']*)'`).FindStringSubmatch(difftest.Read(t, "../../../Makefile"))
	if flags == nil {
		t.Fatal("GO_BUILD has no -ldflags")
	}
	out, err := exec.Command("make", "-n", "-C", "../../..", "image", "TAG=v0.1.0").Output()
	if err != nil || !strings.Contains(string(out), "pkg/core/build.version=v0.1.0 ") || !strings.Contains(string(out), "-version 'v0.1.0'") {
		t.Errorf("TAG is not the version: %v\n%s", err, out)
	}
	values := strings.NewReplacer("$(VERSION)", "v1.2.0-4-gabcdef0-dirty", "$(REVISION)", "abcdef0123456789")
	program := filepath.Join(t.TempDir(), "devinfo")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags", values.Replace(flags[1]), "-o", program, "../../../cmd/devinfo").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, arg := range []string{"version", "--version"} {
		out, err := exec.Command(program, arg).Output()
		p, wrong := build.ParsePlugin(string(out))
		want := build.Info{Version: "v1.2.0-4-gabcdef0-dirty", Revision: "abcdef012345", Dirty: true, Go: runtime.Version()}
		if err != nil || wrong != nil || p.Info != want || p.JournalFormat != journal.Format {
			t.Errorf("%s: %q, %v, %v", arg, out, err, wrong)
		}
	}
}

func TestPluginVersionIsParsed(t *testing.T) {
	for text, p := range map[string]build.Plugin{
		"devinfo v1.2.0-4-gabcdef0-dirty, commit 0123456789ab (dirty), go1.26.0\njournal format 12\n": {
			Info: build.Info{Version: "v1.2.0-4-gabcdef0-dirty", Revision: "0123456789ab", Dirty: true, Go: "go1.26.0"}, JournalFormat: 12,
		},
		"devinfo v1.2.0\njournal format 1\n":                 {Info: build.Info{Version: "v1.2.0"}, JournalFormat: 1},
		"devinfo (devel), go1.27-rc1\njournal format 2\n":    {Info: build.Info{Version: "(devel)", Go: "go1.27-rc1"}, JournalFormat: 2},
		"devinfo v1, commit 01, go1.26\njournal format 33\n": {Info: build.Info{Version: "v1", Revision: "01", Go: "go1.26"}, JournalFormat: 33},
	} {
		difftest.Equal(t, p.String(), text)
		for _, later := range []string{"", "licence Apache-2.0\n"} {
			if got, err := build.ParsePlugin(text + later); err != nil || got != p {
				t.Errorf("%q: %+v, %v", text, got, err)
			}
		}
	}
	if got, err := build.ParsePlugin("devinfo v2\nlater than this\njournal format 3\n"); err != nil || got.JournalFormat != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestInvalidPluginVersionIsError(t *testing.T) {
	for _, text := range []string{
		"", "\n", "devinfo", "devinfo \njournal format 2\n", "devinfo a b\njournal format 2\n", "bridge v1.9.1\njournal format 2\n", "v1.9.1\njournal format 2\n",
		"CNI plugin devinfo: device information for network attachments", "devinfo v1\n", "devinfo v1\njournal format x\n", "devinfo v1\njournal format 0\n", "devinfo v1\njournal format 2 x\n",
		"devinfo v\xff\njournal format 2\n", // labels of metrics must be UTF-8
	} {
		if got, err := build.ParsePlugin(text); err == nil || got != (build.Plugin{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
