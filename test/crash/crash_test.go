// Package crash_test runs the devinfo binary and injects a fault (package inject) at every system call that changes the
// file system: the program is killed, or the call fails. It does so for ADD, DEL and GC of each kind of attachment.
// Afterwards it repeats the calls of a runtime. No file may remain or be incomplete, and other attachments must keep
// their state.
//
// It also stops each verb, and devinfoctl gc, at every system call that reads or changes shared state. Meanwhile an
// actor runs: a runtime that deletes the attachment and adds it again, a second runtime, another pod, a GC, or a claim
// of the device. The actor runs to its end, or until it waits for a lock of the stopped program, which then continues
// (interleave_test.go). A living attachment must be complete, and a deleted one must not leave state. Two holders must
// not have the same device (holders_test.go).
//
// The environment variable DEVINFO_CRASH selects the trials: "all" (make test-crash), "sample" (one or two minutes,
// chosen by the seed in DEVINFO_CRASH_SEED or a random one), or a text in the names of trials, such as "ADD, EIO at 7,
// GC", as a failure prints it. By default there is one fixed trial of each verb and fault, and of each verb and actor.
//
// former_test.go runs attachments with former builds and this one in turn. power_test.go simulates power failures.
// load_test.go runs many attachments with many workers (make test-crash CRASH=load).
package crash_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/undertest"
)

var verbs = []string{"ADD", "DEL", "GC"}

func TestNoCrashLeavesOrLosesState(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			linktest.Run(t, func(t *testing.T) {
				w := newWorld(t, os.Getenv(undertest.Key))
				w.settle(s)
				random := rand.New(rand.NewPCG(seed(t), 0))
				w.tryAll(s, random).report(t)
			})
		})
	}
}

// sampled is the number of trials of each verb and fault in a sample.
const sampled = 3

// pick returns the trials that the environment variable selects.
func pick[T fmt.Stringer](random *rand.Rand, trials []T) []T {
	n := 1
	switch want := os.Getenv(extent); want {
	case "":
	case "all":
		return trials
	case "sample":
		n = sampled
	default:
		return slices.DeleteFunc(trials, func(tr T) bool { return !strings.Contains(tr.String(), want) })
	}
	random.Shuffle(len(trials), func(i, j int) { trials[i], trials[j] = trials[j], trials[i] })
	return trials[:min(n, len(trials))]
}

// tryAll runs the selected trials of each verb and fault.
func (w *world) tryAll(s scenario, random *rand.Rand) findings {
	w.t.Helper()
	found := findings{}
	for _, verb := range verbs {
		points := w.points(s, verb)
		var scores []string
		for _, f := range faults() {
			sum := score{}
			for _, tr := range pick(random, list(s, verb, f, points)) {
				point, problems := w.try(tr)
				if point.N == 0 && len(problems) == 0 {
					continue // the program ended before this point
				}
				sum = sum.add(problems)
				found.add(problems, fmt.Sprintf("%s='%s': %s", extent, tr, point))
			}
			scores = append(scores, sum.of(f.name)...)
		}
		tell(w.t, s.name+", "+verb, scores)
	}
	return found
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

// points returns how many calls a verb makes without a fault: calls of the plugin, and calls of its delegates.
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

// list returns all trials of a verb and a fault. It includes one point more than counted, because the number may
// differ between runs. The last point is the plugin's exit, which cannot fail.
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

// A score counts trials.
type score struct{ survived, tried int }

func (s score) add(problems []string) score {
	s.tried++
	if len(problems) == 0 {
		s.survived++
	}
	return s
}

// of returns a line with the score, or nothing if there were no trials.
func (s score) of(what string) []string {
	if s.tried == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s survived %d/%d", what, s.survived, s.tried)}
}

// findings are the problems, each with the trials that had it.
type findings map[string][]string

// veths matches the random interface names of the plugin bridge.
var veths = regexp.MustCompile(`\bveth[0-9a-f]{8}\b`)

func (f findings) add(problems []string, where string) {
	for _, problem := range problems {
		class := veths.ReplaceAllString(problem, "vethXXXXXXXX")
		f[class] = append(f[class], where)
	}
}

// shown is the number of trials that are printed for a problem.
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

// tell records scores in a file for the parent process, which prints them.
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

const (
	extent   = "DEVINFO_CRASH"
	seedKey  = "DEVINFO_CRASH_SEED"
	toolKey  = "DEVINFO_CRASH_DEVINFOCTL" // path of its executable
	tallyKey = "DEVINFO_CRASH_TALLY"      // file to which the tests' processes write their scores
)

func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	switch name {
	case marker:
		answer(mark())
	case claimant:
		answer(hold(os.Args[1]))
	default:
		os.Exit(undertest.Main(func(dir string) int { return run(m, dir) }))
	}
}

func run(m *testing.M, dir string) int {
	if os.Getenv(tallyKey) != "" { // linktest starts this program again for each test
		return m.Run()
	}
	tally := filepath.Join(dir, "tally")
	os.Setenv(tallyKey, tally)
	chosen := os.Getenv(extent) == "sample" || os.Getenv(attachmentsKey) != ""
	if n := os.Getenv(seedKey); chosen && (n == "" || n == "0") {
		os.Setenv(seedKey, strconv.FormatUint(rand.Uint64(), 10))
	}
	code := m.Run()
	if lines, err := os.ReadFile(tally); err == nil && (chosen || os.Getenv(extent) != "") {
		fmt.Print(strings.Join(slices.Sorted(strings.Lines(string(lines))), ""))
		if chosen {
			fmt.Println("the same again: the same make, with SEED=" + os.Getenv(seedKey))
		}
	}
	return code
}

var builtTool sync.Once

// buildTool builds devinfoctl once for the processes that tests start.
func buildTool(t *testing.T) {
	t.Helper()
	builtTool.Do(func() {
		if os.Getenv(toolKey) != "" {
			return
		}
		binary := filepath.Join(filepath.Dir(os.Getenv(tallyKey)), "devinfoctl")
		undertest.Programs(t, binary, "", "devinfo-cni.io/cmd/devinfoctl")
		os.Setenv(toolKey, binary)
	})
}
