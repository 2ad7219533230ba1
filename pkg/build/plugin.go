package build

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

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
		if n, err := fmt.Sscanf(line, journalKey+"%d\n", &p.JournalFormat); n == 1 && err == nil && p.JournalFormat > 0 {
			p.Info = info
			return p, nil
		}
	}
	return Plugin{}, errors.New("missing line \"" + journalKey + "N\"")
}

// parse parses the output of Info.String.
func parse(line string) (i Info) {
	line, toolchain, ok := strings.Cut(line, goKey)
	if ok {
		i.Go = "go" + toolchain
	}
	line, i.Dirty = strings.CutSuffix(line, dirtyMark)
	i.Version, i.Revision, _ = strings.Cut(line, commitKey)
	return i
}
