// Package release prints and parses what "devinfo --version" says of a build: an installer
// reads it before it replaces one build with another.
package release

import (
	"errors"
	"fmt"
	"strings"
)

// Release is one build of the plugin.
type Release struct {
	Version       string // "v1.2.0", or whatever the build was called
	JournalFormat int    // format of the entries that it writes, the highest that it reads
}

const (
	versionKey = "devinfo "
	journalKey = "journal format "
)

func (r Release) String() string {
	return fmt.Sprintf("%s%s\n%s%d\n", versionKey, r.Version, journalKey, r.JournalFormat)
}

// Parse reads the output of String. It ignores further lines, which later builds may add.
func Parse(text string) (r Release, err error) {
	first, rest, _ := strings.Cut(text, "\n")
	version, ok := strings.CutPrefix(first, versionKey)
	if !ok || version == "" || strings.ContainsAny(version, " \t") {
		return r, fmt.Errorf("%q does not begin with %q and a version", first, versionKey)
	}
	for line := range strings.Lines(rest) {
		if n, err := fmt.Sscanf(line, journalKey+"%d\n", &r.JournalFormat); n == 1 && err == nil && r.JournalFormat > 0 {
			r.Version = version
			return r, nil
		}
	}
	return Release{}, errors.New("there is no line \"" + journalKey + "N\"")
}
