// Package build says what a program was built from, as Go notes it in each executable.
package build

import (
	"cmp"
	"runtime/debug"
)

// Info is what Go noted. A key that is empty was not noted: a test binary has no
// revision, say.
type Info struct {
	Version  string `json:"version,omitempty"`  // of the module; "(devel)" where it has none
	Revision string `json:"revision,omitempty"` // of the repository
	Dirty    bool   `json:"dirty,omitempty"`    // the repository had changes
	Go       string `json:"go,omitempty"`       // "go1.26.0"
}

// Read is of the program that runs.
func Read() Info {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{}
	}
	return Of(info)
}

// Of is what Go noted in some executable.
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

// Same says whether both are of one source, as far as it is noted.
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
