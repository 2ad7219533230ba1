// Package build reports the version and commit that a program was built from. They come from the
// linker flags of the Makefile, else from Go's build information.
package build

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// The linker sets version and revision: see GO_BUILD in the Makefile.
var version, revision string

// Info describes a build. Unknown fields are empty; a test binary, for example, has no revision.
type Info struct {
	Version  string `json:"version,omitempty"`  // "v0.1.0", or the output of git describe; "(devel)" if there is none
	Revision string `json:"revision,omitempty"` // commit of the repository
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

// Of describes an executable by its Go build information, which does not contain the linker's
// version and revision.
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

// Same reports whether both builds come from the same source. A build without a revision counts as
// the same as any other.
func (i Info) Same(other Info) bool {
	return i.Revision == "" || other.Revision == "" || short(i.Revision) == short(other.Revision) && i.Dirty == other.Dirty
}

// short returns the prefix of a revision that String prints.
func short(revision string) string { return revision[:min(12, len(revision))] }

// Separators between the parts of Info.String.
const (
	commitKey = ", commit "
	dirtyMark = " (dirty)"
	goKey     = ", go"
)

// String returns one line, such as "v0.1.0, commit 0123456789ab (dirty), go1.26.0".
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
