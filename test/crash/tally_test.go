package crash_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

const untried = "-"

// A score counts trials.
type score struct{ survived, tried int }

func (s score) add(problems []string) score {
	s.tried++
	if len(problems) == 0 {
		s.survived++
	}
	return s
}

func (s score) String() string {
	if s.tried == 0 {
		return untried
	}
	return fmt.Sprintf("%d/%d", s.survived, s.tried)
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

// The tables that are printed in the end.
const (
	crashTable       = "crash"
	powerTable       = "power"
	interleavedTable = "interleaved"
	holdersTable     = "holders"
)

// heads are the tables' first lines, in the order in which they are printed.
func heads() [][2]string {
	crash := "survived/tried\t"
	for _, f := range faults() {
		crash += "\t" + f.name
	}
	interleaved := "survived/tried, waited\tstopped"
	for _, a := range actors() {
		interleaved += "\t" + a.name
	}
	return [][2]string{{crashTable, crash}, {powerTable, "survived/tried\tpower failure"},
		{interleavedTable, interleaved}, {holdersTable, "one holder at most\tstopped\tactor\tsurvived/tried, waited"}}
}

// save adds a row to a table, for the parent process.
func save(t *testing.T, table string, row []string) {
	t.Helper()
	file, err := os.OpenFile(os.Getenv(tallyKey)+table, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintln(file, strings.Join(row, "\t"))
		file.Close()
	}
	if err != nil {
		t.Error(err)
	}
}

// tables are the rows that have been saved.
func tables(path string) string {
	var out strings.Builder
	for _, head := range heads() {
		rows, err := os.ReadFile(path + head[0])
		if err != nil {
			continue // it was not asked for
		}
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, head[1])
		fmt.Fprint(w, strings.Join(slices.Sorted(strings.Lines(string(rows))), ""))
		w.Flush()
	}
	return out.String()
}
