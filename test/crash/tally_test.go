package crash_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A score counts trials.
type score struct{ survived, tried int }

func (s score) add(problems []string) score {
	s.tried++
	if len(problems) == 0 {
		s.survived++
	}
	return s
}

// of says for people what the trials were of; nothing if there were none.
func (s score) of(what string) []string {
	if s.tried == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s survived %d/%d", what, s.survived, s.tried)}
}

// findings are what went wrong, each with where it did.
type findings map[string][]string

// veths are the names that the plugin bridge makes up.
var veths = regexp.MustCompile(`\bveth[0-9a-f]{8}\b`)

func (f findings) add(problems []string, where string) {
	for _, problem := range problems {
		class := veths.ReplaceAllString(problem, "vethXXXXXXXX")
		f[class] = append(f[class], where)
	}
}

// shown is how many places of a finding are printed, of all kinds of them.
const shown = 6

func (f findings) report(t *testing.T) {
	t.Helper()
	for _, class := range slices.Sorted(maps.Keys(f)) {
		where := f[class]
		text := fmt.Sprintf("%d x %s", len(where), class)
		for n := range min(shown, len(where)) {
			text += "\n\t" + where[n*len(where)/min(shown, len(where))]
		}
		t.Error(text)
	}
}

// tell notes scores, for the parent process to print.
func tell(t *testing.T, of string, scores []string) {
	t.Helper()
	if len(scores) == 0 {
		return
	}
	file, err := os.OpenFile(os.Getenv(tallyKey), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintf(file, "%s: %s\n", of, strings.Join(scores, "; "))
		file.Close()
	}
	if err != nil {
		t.Error(err)
	}
}
