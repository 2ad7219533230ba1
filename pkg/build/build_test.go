package build_test

import (
	"runtime"
	"runtime/debug"
	"testing"

	"devinfo-cni.io/pkg/build"
)

func TestABuildIsOneLine(t *testing.T) {
	noted := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"},
	}}
	for want, i := range map[string]build.Info{
		"v0.1.0, commit 0123456789ab (dirty), go1.26.0": build.Of(noted), "unknown version": {}, "(devel), commit 01": {Version: "(devel)", Revision: "01"},
	} {
		if i.String() != want {
			t.Errorf("%s; want %s", i, want)
		}
	}
}

func TestWhatWasNotNotedDoesNotDiffer(t *testing.T) {
	a, b := build.Info{Revision: "a"}, build.Info{Revision: "b"}
	if a.Same(b) || a.Same(build.Info{Revision: "a", Dirty: true}) || !a.Same(build.Info{}) || !(build.Info{}).Same(b) || !a.Same(a) {
		t.Error("it differs")
	}
}

func TestTheProgramThatRunsKnowsItsGo(t *testing.T) {
	if got := build.Read().Go; got != runtime.Version() {
		t.Errorf("%q", got)
	}
}
