package claim

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func allWants() []want { return []want{keep, attach, detach, forget} }

// forEachView calls f with each combination of phase, want and view of one attachment.
func forEachView(f func(phase state.Phase, w want, a attachmentView)) {
	for _, phase := range state.Phases() {
		for _, w := range allWants() {
			for bits := range 1 << 9 {
				is := func(n int) bool { return bits&(1<<n) != 0 }
				f(phase, w, attachmentView{sameSandbox: is(0), sandboxGone: is(1), netnsGone: is(2), gateOpen: is(3), retryDue: is(4), triesExhausted: is(5), deviceInUse: is(6), cleared: is(7), bare: phase == state.Prepared && is(8)})
			}
		}
	}
}

func TestDecideInEachPhaseAndView(t *testing.T) {
	ends := []want{detach, forget}
	forEachView(func(phase state.Phase, w want, a attachmentView) {
		got := decide(phase, w, a)
		fail := func(why string) { t.Errorf("%s, %s, %+v: %q: %s", phase, w, a, got, why) }
		attached := phase == state.Adding || phase == state.Added
		if (got == doAdd) != (phase == state.Prepared && w == attach && !a.bare) {
			fail("ADD runs only for prepared attachments that a sandbox wants")
		}
		if attached && slices.Contains(ends, w) && got != doDel {
			fail("DEL runs at once when the sandbox has ended")
		}
		if attached && w == keep && !a.sandboxGone && got == doDel {
			fail("DEL does not run while the sandbox may still exist")
		}
		if attached && w == keep && a.sandboxGone && got != doDel {
			fail("DEL runs when the sandbox no longer exists")
		}
		if phase == state.Adding && w == attach && got != doDel {
			fail("DEL runs after a failed ADD")
		}
		if phase == state.Added && w == attach && (got == doDel) == a.sameSandbox {
			fail("DEL runs for the attachment to another sandbox only")
		}
		if a.bare && (got == doOpen) != (!a.gateOpen && w != forget) {
			fail("the gate of an attachment without a network opens in Prepare")
		}
		if (got == doOpen) && !a.bare && (phase != state.Added || a.gateOpen || w == attach && !a.sameSandbox) {
			fail("other gates open only for attachments to the right sandbox")
		}
		if (phase == state.Deleting || phase == state.Restoring) && got == none {
			fail("a pending DEL or restore is never dropped")
		}
		if got == doRestore && phase != state.Restoring || phase == state.Restoring && got == doDel {
			fail("restore runs after DEL, and then DEL does not run again")
		}
		if (got == doGiveUp) != ((phase == state.Deleting || phase == state.Restoring) && a.triesExhausted && a.netnsGone) {
			fail("an attachment is given up only if its tries are exhausted and its network namespace is gone")
		}
		if (got == doClear) != (phase == state.Undeleted && a.cleared) {
			fail("only undeleted attachments that an administrator cleared are cleared")
		}
		if a.deviceInUse && got == doDelAgain {
			fail("DEL is not retried while another attachment has the device")
		}
		if !a.retryDue && (got == doDel && !attached || got == doDelAgain || got == doRestore) {
			fail("no retry during a back-off")
		}
	})
}

// recordAndView returns a record whose attachments have these phases, and a matching view.
func recordAndView(phases ...state.Phase) (*state.Claim, claimView) {
	record, now := &state.Claim{}, claimView{mayRetry: true}
	for _, phase := range phases {
		at, world := state.Attachment{Phase: phase}, attachmentView{sameSandbox: true, gateOpen: true, retryDue: true}
		if phase == state.Undeleted {
			record.Undeleted, now.undeleted = append(record.Undeleted, at), append(now.undeleted, world)
		} else {
			record.Attachments, now.attachments = append(record.Attachments, at), append(now.attachments, world)
		}
	}
	return record, now
}

// observe changes the view as a word of testdata says.
func (v *claimView) observe(word string) {
	exhausted := attachmentView{triesExhausted: true, netnsGone: true}
	map[string]func(){
		"unsaved":     func() { v.unsaved = true },
		"never saved": func() { v.neverSaved = true },
		"failed":      func() { v.mayRetry = false },
		"ADD error":   func() { v.attachError = true },
		"closed 1":    func() { v.attachments[1].gateOpen = false },
		"back-off 0":  func() { v.attachments[0].retryDue = false },
		"back-off 1":  func() { v.attachments[1].retryDue = false },
		"exhausted 0": func() { v.attachments[0] = exhausted },
		"exhausted 1": func() { v.attachments[1] = exhausted },

		"undeleted back-off": func() { v.undeleted[0].retryDue = false },
		"undeleted in use":   func() { v.undeleted[0].deviceInUse = true },
		"undeleted cleared":  func() { v.undeleted[0].cleared = true },
	}[word]()
}

func TestReconcileReturnsNextStep(t *testing.T) {
	goldentest.Lines(t, "testdata/steps.txt", func(line string) []string {
		part := strings.Split(line, " / ")
		var phases []state.Phase
		for _, phase := range strings.Fields(strings.TrimPrefix(part[0], "none")) {
			phases = append(phases, state.Phase(phase))
		}
		record, now := recordAndView(phases...)
		for _, words := range part[2:] {
			for _, word := range strings.Split(words, ", ") {
				now.observe(word)
			}
		}
		s := reconcile(record, goal{want: want(part[1])}, now)
		if s.at == nil {
			return []string{fmt.Sprintf("%q", s.do)}
		}
		return []string{fmt.Sprintf("%q %v", s.do, s.at)}
	})
}

// While a back-off runs, only DEL and restore can run, because they have their own back-offs.
func TestFailedStepIsNotRepeatedDuringBackOff(t *testing.T) {
	forEachView(func(phase state.Phase, w want, a attachmentView) {
		for _, unsaved := range []bool{true, false} {
			record, now := recordAndView(phase)
			record.StatusOwed, now.mayRetry, now.neverSaved, now.unsaved, now.reported = true, false, unsaved, unsaved, true
			for _, list := range [][]attachmentView{now.attachments, now.undeleted} {
				copy(list, []attachmentView{a})
			}
			s := reconcile(record, goal{want: w}, now)
			if !slices.Contains([]action{doDel, doDelAgain, doRestore, wait}, s.do) {
				t.Errorf("%s, %s, %+v: %q", phase, w, a, s.do)
			}
		}
	})
}

// With DELs that succeed, each claim reaches its goal in a few steps, from any phases.
func TestEachClaimReachesItsGoal(t *testing.T) {
	for _, one := range state.Phases()[:5] {
		for _, other := range state.Phases()[:5] {
			for _, g := range []goal{{want: forget}, {attach, "s"}} {
				if last := runSteps(t, g, one, other); last == doForget != (g.want == forget) {
					t.Errorf("%s, %s, %s: ends with %q", one, other, g.want, last)
				}
			}
		}
	}
}

func runSteps(t *testing.T, g goal, phases ...state.Phase) action {
	record, now := recordAndView(phases...)
	for range 10 {
		s := reconcile(record, g, now)
		for _, n := range s.at {
			record.Attachments[n].Phase = map[action]state.Phase{doAdd: state.Added, doDel: state.Restoring, doRestore: state.Prepared}[s.do]
		}
		if s.do == doForget || s.do == none {
			if s.do == none && slices.ContainsFunc(record.Attachments, func(at state.Attachment) bool { return at.Phase != state.Added }) {
				t.Errorf("%s: stays %+v", phases, record.Attachments)
			}
			return s.do
		}
	}
	t.Errorf("%s, %s: does not end", phases, g.want)
	return wait
}

// asTable returns the rules as the table in README.md.
func asTable() string {
	words := func(list []string, all int) string {
		if len(list) == all {
			return "any"
		}
		return strings.Join(list, ", ")
	}
	var b strings.Builder
	b.WriteString("| phase | wanted | if | step |\n|---|---|---|---|\n")
	for _, r := range rules() {
		var ps, ws []string
		for _, p := range r.phases {
			ps = append(ps, string(p))
		}
		for _, w := range r.wants {
			ws = append(ws, string(w))
		}
		then := string(r.then)
		if then == "" {
			then = "-"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", words(ps, len(state.Phases())), words(ws, len(allWants())), r.when, then)
	}
	return b.String()
}

// diagram returns the phases and their transitions as the diagram in README.md.
func diagram() string {
	edges := []string{"[*] --> Prepared"}
	to := map[action]string{doAdd: "Adding", doDel: "Deleting", doGiveUp: "Undeleted", doClear: "[*]", doDelAgain: "[*]"}
	for _, r := range rules() {
		for _, phase := range r.phases {
			target, ok := to[r.then]
			edge := fmt.Sprintf("%s --> %s: %s", phase, target, r.then)
			if ok && string(phase) != target && !slices.Contains(edges, edge) {
				edges = append(edges, edge)
			}
		}
	}
	edges = append(edges, "Adding --> Added: ADD has succeeded", "Deleting --> Prepared: DEL has succeeded",
		"Deleting --> Restoring: DEL has succeeded, and a device must be restored", "Restoring --> Prepared: the device is restored", "Prepared --> [*]: forget")
	return "```mermaid\nstateDiagram-v2\n    " + strings.Join(edges, "\n    ") + "\n```\n"
}

// asList returns the order of the steps as in README.md.
func asList() string {
	var names []string
	for _, next := range order(&state.Claim{}, goal{}, claimView{}, func(action) bool { return false }) {
		names = append(names, string(next.do))
	}
	return "\n    " + strings.Join(names, ", ") + "\n"
}

func TestReadmeShowsRules(t *testing.T) {
	difftest.Contains(t, difftest.Read(t, "README.md"), asTable(), diagram(), asList())
}

// A step may fail after the goal has changed. Unprepare must not return the error of a save for Prepare.
func TestFailureDoesNotAffectNewGoal(t *testing.T) {
	e := newEngine(t)
	for _, forgotten := range []bool{false, true} {
		c := newClaim(&state.Claim{UID: "u1"})
		e.table.claims["u1"] = c
		save, before := step{do: doSave}, goal{want: keep}
		lanes, ok := e.worker.begin(c, save, observation{goal: before})
		if !ok {
			t.Fatal("the step does not begin")
		}
		if forgotten {
			e.table.do(func() { e.table.forget(c) })
		}
		e.worker.end(c, save, before, lanes, errors.New("the disk is full"))
		if (c.failure == retry{}) != forgotten {
			t.Errorf("forgotten %v: %+v", forgotten, c.failure)
		}
	}
}

func newEngine(t *testing.T) *Engine {
	t.Helper()
	dir := t.TempDir()
	e, err := New(Options{
		Driver: "d.example.com", Dirs: Dirs{StateDir: dir, CacheDir: dir, CDIDir: dir, DeviceInfoDir: dir},
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	difftest.Must(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}
