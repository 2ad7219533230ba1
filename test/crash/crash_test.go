package crash_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"

	"devinfo-cni.io/pkg/link/linktest"
	"devinfo-cni.io/test/crash/inject"
)

func TestCrash(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			linktest.Run(t, func(t *testing.T) {
				w := newWorld(t, os.Getenv(underTest))
				w.settle(s)
				tl := w.tryAll(s, asked(t))
				if err := tl.save(s.name); err != nil {
					t.Error(err)
				}
				for _, class := range tl.classes() {
					t.Error(class)
				}
			})
		})
	}
}

// sampled is how many trials of each verb and fault are in a sample.
const sampled = 4

// asked picks the trials that the environment asks for, out of all of one verb and
// fault.
func asked(t *testing.T) func(trials []trial) []trial {
	t.Helper()
	random := rand.New(rand.NewPCG(seed(t), 0))
	some := func(trials []trial, n int) []trial {
		random.Shuffle(len(trials), func(i, j int) { trials[i], trials[j] = trials[j], trials[i] })
		return trials[:min(n, len(trials))]
	}
	return func(trials []trial) []trial {
		switch want := os.Getenv(extent); want {
		case "all":
			return trials
		case "sample":
			return some(trials, sampled)
		case "":
			return some(trials, 1)
		default:
			return slices.DeleteFunc(trials, func(tr trial) bool { return tr.String() != want })
		}
	}
}

// tryAll runs the trials that pick leaves of those of each verb and fault.
func (w *world) tryAll(s scenario, pick func([]trial) []trial) *tally {
	w.t.Helper()
	tl := &tally{tried: map[cell]int{}, survived: map[cell]int{}, failed: map[string][]failure{}}
	for _, verb := range []string{"ADD", "DEL", "GC"} {
		points := w.points(s, verb)
		for _, f := range faults() {
			for _, tr := range pick(list(s, verb, f, points)) {
				tl.add(tr, w)
			}
		}
	}
	return tl
}

func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv(seedKey)
	if text == "" {
		return 1
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", seedKey, err)
	}
	return n
}

// points are the calls of a verb without a fault: of the plugin, and of its delegates.
func (w *world) points(s scenario, verb string) (calls [2]int) {
	w.t.Helper()
	w.before(trial{scenario: s, verb: verb})
	o := w.call(verb, ours, s.conf, func(c inject.Call) inject.Verdict {
		if c.Child {
			calls[1] = c.N
		} else {
			calls[0] = c.N
		}
		return inject.Verdict{}
	})
	if why := o.failure(); why != "" {
		w.t.Fatalf("%s without a fault: %s", verb, why)
	}
	w.base.restore(w.t, take(w.t))
	return calls
}

// list are all trials of a verb and a fault. The number of points may differ from run
// to run: one more is tried. The last is the plugin's end, which cannot fail.
func list(s scenario, verb string, f fault, points [2]int) (trials []trial) {
	n := points[0]
	switch {
	case f.orphan:
		n = points[1]
	case f.verdict.Kill:
		n++
	}
	then := []string{del, gc, again}
	if s.former != nil && verb == "ADD" {
		then = append(then, delFormer)
	}
	for point := range n {
		for _, what := range then {
			trials = append(trials, trial{s, verb, f, point + 1, what})
		}
	}
	return trials
}

type cell struct{ verb, fault string }

type failure struct {
	trial trial
	point inject.Call
}

// tally counts the trials, and has the failures by what went wrong.
type tally struct {
	tried, survived map[cell]int
	failed          map[string][]failure
}

func (tl *tally) add(tr trial, w *world) {
	point, problems := w.try(tr)
	if point.N == 0 && len(problems) == 0 {
		return // it did not come that far
	}
	c := cell{tr.verb, tr.fault.name}
	tl.tried[c]++
	if len(problems) == 0 {
		tl.survived[c]++
	}
	for _, problem := range problems {
		class := veths.ReplaceAllString(problem, "vethXXXXXXXX")
		tl.failed[class] = append(tl.failed[class], failure{tr, point})
	}
}

// veths are the names that the plugin bridge makes up.
var veths = regexp.MustCompile(`\bveth[0-9a-f]{8}\b`)

// shown is how many failures of a kind are printed.
const shown = 5

// classes describes what went wrong, a text for each kind.
func (tl *tally) classes() (texts []string) {
	for _, class := range slices.Sorted(maps.Keys(tl.failed)) {
		failures := tl.failed[class]
		var text strings.Builder
		fmt.Fprintf(&text, "%d x %s", len(failures), class)
		for _, f := range failures[:min(shown, len(failures))] {
			fmt.Fprintf(&text, "\n\t%s='%s': %s", extent, f.trial, f.point)
		}
		texts = append(texts, text.String())
	}
	return texts
}

// save adds the tally to the file that the parent process prints.
func (tl *tally) save(name string) error {
	var text strings.Builder
	for _, verb := range []string{"ADD", "DEL", "GC"} {
		fmt.Fprintf(&text, "%s\t%s", name, verb)
		for _, f := range faults() {
			c := cell{verb, f.name}
			fmt.Fprintf(&text, "\t%d/%d", tl.survived[c], tl.tried[c])
		}
		fmt.Fprintln(&text)
	}
	file, err := os.OpenFile(os.Getenv(tallyKey), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(text.String())
	return err
}

// tabulated makes a table of the tallies in a file; "" if there are none.
func tabulated(path string) string {
	rows, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "survived/tried")
	head := "\t"
	for _, f := range faults() {
		head += "\t" + f.name
	}
	fmt.Fprintln(table, head)
	sorted := slices.Sorted(strings.Lines(string(rows)))
	fmt.Fprint(table, strings.Join(sorted, ""))
	table.Flush()
	return out.String()
}
