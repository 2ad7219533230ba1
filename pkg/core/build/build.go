// Package build reports the version and commit that a program was built from. They come from the
// linker flags of the Makefile, else from Go's build information.
package build

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"unicode/utf8"
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

// Of describes an executable by its Go build information, which does not contain the linker's version and revision.
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

// Plugin is a build of the CNI plugin. "devinfo --version" prints it, and an installer parses that
// output before it replaces a build.
type Plugin struct {
	Info
	JournalFormat int // format of the journal entries it writes, and the newest it can read
}

const (
	pluginKey  = "devinfo "
	journalKey = "journal format "
)

func (p Plugin) String() string {
	return fmt.Sprintf("%s%s\n%s%d\n", pluginKey, p.Info, journalKey, p.JournalFormat)
}

// ParsePlugin parses the output of Plugin.String. It ignores unknown lines, which a later build may add.
func ParsePlugin(text string) (p Plugin, err error) {
	first, rest, _ := strings.Cut(text, "\n")
	said, ok := strings.CutPrefix(first, pluginKey)
	info := parse(said)
	if !ok || !utf8.ValidString(first) || info.Version == "" || strings.ContainsAny(info.Version, " \t") {
		return p, fmt.Errorf("%q does not begin with %q and a version", first, pluginKey)
	}
	for line := range strings.Lines(rest) {
		if _, err := fmt.Sscanf(line, journalKey+"%d\n", &p.JournalFormat); err == nil && p.JournalFormat > 0 {
			p.Info = info
			return p, nil
		}
	}
	return Plugin{}, errors.New("missing line \"" + journalKey + "N\"")
}

func parse(line string) (i Info) {
	line, toolchain, ok := strings.Cut(line, goKey)
	if ok {
		i.Go = "go" + toolchain
	}
	line, i.Dirty = strings.CutSuffix(line, dirtyMark)
	i.Version, i.Revision, _ = strings.Cut(line, commitKey)
	return i
}
