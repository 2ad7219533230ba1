// Package build says what a program was built from: its version and commit, as the Makefile
// has the linker note them, else as Go does. All programs print it the same way.
package build

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// Both are set by the linker, for every program: see GO_BUILD in the Makefile.
var version, revision string

// Info is what was noted. A key that is empty was not: a test binary has no revision, say.
type Info struct {
	Version  string `json:"version,omitempty"`  // "v0.1.0", or what git describe says; "(devel)" where there is none
	Revision string `json:"revision,omitempty"` // of the repository
	Dirty    bool   `json:"dirty,omitempty"`    // the repository had changes
	Go       string `json:"go,omitempty"`       // "go1.26.0"
}

// Read describes the running program.
func Read() Info {
	var i Info
	if noted, ok := debug.ReadBuildInfo(); ok {
		i = Of(noted)
	}
	if version != "" {
		i.Version, i.Revision, i.Dirty = version, cmp.Or(revision, i.Revision), strings.HasSuffix(version, "-dirty")
	}
	return i
}

// Of describes an executable by what Go recorded in it. What the linker was told is not there.
func Of(noted *debug.BuildInfo) Info {
	i := Info{Version: noted.Main.Version, Go: noted.GoVersion}
	for _, s := range noted.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Revision = s.Value
		case "vcs.modified":
			i.Dirty = s.Value == "true"
		}
	}
	return i
}

// Same reports whether both were built from the same source, as far as that was recorded.
func (i Info) Same(other Info) bool {
	return i.Revision == "" || other.Revision == "" || short(i.Revision) == short(other.Revision) && i.Dirty == other.Dirty
}

// short is as much of a revision as is printed.
func short(revision string) string { return revision[:min(12, len(revision))] }

// Before each part of what String gives, after the version.
const (
	commitKey = ", commit "
	dirtyMark = " (dirty)"
	goKey     = ", go"
)

// String is one line: "v0.1.0, commit 0123456789ab (dirty), go1.26.0".
func (i Info) String() string {
	text := cmp.Or(i.Version, "unknown version")
	if i.Revision != "" {
		text += commitKey + short(i.Revision)
	}
	if i.Dirty {
		text += dirtyMark
	}
	if i.Go != "" {
		text += ", " + i.Go
	}
	return text
}
