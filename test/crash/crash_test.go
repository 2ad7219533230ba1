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
// chosen by the seed in DEVINFO_CRASH_SEED; 0 = a random one), or a text in the names of trials, such as "ADD, EIO at 7,
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
	"testing"

	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

var verbs = []string{"ADD", "DEL", "GC"}

func TestNoCrashLeavesOrLosesState(t *testing.T) {
	inEach(t, "", func(w *world, s scenario, found findings) {
		w.settle(s)
		w.tryAll(s, found)
	})
}

// inEach calls f with each scenario, in worlds of their own, and reports what it finds.
func inEach(t *testing.T, prefix string, f func(w *world, s scenario, found findings)) {
	for _, s := range scenarios() {
		t.Run(prefix+s.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				found := findings{}
				f(w, s, found)
				found.report(w.t)
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
func (w *world) tryAll(s scenario, found findings) {
	w.t.Helper()
	random := w.random()
	for _, verb := range verbs {
		points := w.points(s, verb)
		for _, f := range faults() {
			for _, tr := range pick(random, list(s, verb, f, points)) {
				point, problems := w.try(tr) // a program may end before the point
				found.add(problems, fmt.Sprintf("%s='%s': %s", extent, tr, point))
			}
		}
	}
}

func (w *world) random() *rand.Rand { return rand.New(rand.NewPCG(seed(w.t), 0)) }

var anySeed = rand.Uint64()

func seed(t *testing.T) uint64 {
	t.Helper()
	switch text := os.Getenv(seedKey); text {
	case "":
		return 1
	case "0":
		return anySeed
	default:
		n, err := strconv.ParseUint(text, 10, 64)
		difftest.Must(t, err)
		return n
	}
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
	if why := o.Failure(); why != "" {
		w.t.Fatalf("%s without a fault: %s", verb, why)
	}
	view.Restore(w.t, w.base, view.Take(w.t))
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
	if len(f) > 0 {
		t.Logf("%s=%d", seedKey, seed(t))
	}
	for _, class := range slices.Sorted(maps.Keys(f)) {
		where := f[class]
		text := fmt.Sprintf("%d x %s", len(where), class)
		for n := range min(shown, len(where)) {
			text += "\n\t" + where[n*len(where)/min(shown, len(where))]
		}
		t.Error(text)
	}
}

const (
	extent  = "DEVINFO_CRASH"
	seedKey = "DEVINFO_CRASH_SEED"
)

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case marker:
		answer(mark())
	case claimant:
		answer(hold(os.Args[1]))
	default:
		undertest.Temp(m)
	}
}
