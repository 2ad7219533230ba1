// Package build says what a program was built from, as Go records it in each executable.
package build

import (
	"cmp"
	"runtime/debug"
)

// Info is what Go recorded. An empty field was not recorded: a test binary, for example,
// has no revision.
type Info struct {
	Version  string `json:"version,omitempty"`  // of the module; "(devel)" where it has none
	Revision string `json:"revision,omitempty"` // of the repository
	Dirty    bool   `json:"dirty,omitempty"`    // the repository had changes
	Go       string `json:"go,omitempty"`       // "go1.26.0"
}

// Read describes the running program.
func Read() Info {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{}
	}
	return Of(info)
}

// Version is the version of the running program: the one that the linker has set, else the
// module's, else "unknown".
func Version(linked string) string { return cmp.Or(linked, Read().Version, "unknown") }

// Of describes an executable by the information that Go recorded in it.
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
	return i.Revision == "" || other.Revision == "" || i.Revision == other.Revision && i.Dirty == other.Dirty
}

// String is one line: "v0.1.0, commit 0123456789ab (dirty), go1.26.0".
func (i Info) String() string {
	text := cmp.Or(i.Version, "unknown version")
	if i.Revision != "" {
		text += ", commit " + i.Revision[:min(12, len(i.Revision))]
	}
	if i.Dirty {
		text += " (dirty)"
	}
	if i.Go != "" {
		text += ", " + i.Go
	}
	return text
}
