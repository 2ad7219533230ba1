package claim

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/state"
)

func allWants() []want { return []want{keep, attach, detach, forget} }

// forEachView calls f with each phase, want and world of one attachment.
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
			fail("ADD is for what a sandbox wants and nobody has")
		}
		if attached && slices.Contains(ends, w) && got != doDel {
			fail("what has ended is deleted at once")
		}
		if attached && w == keep && !a.sandboxGone && got == doDel {
			fail("what may live is not deleted")
		}
		if attached && w == keep && a.sandboxGone && got != doDel {
			fail("what is stale is deleted")
		}
		if phase == state.Adding && w == attach && got != doDel {
			fail("nobody knows what an ADD that did not succeed has left")
		}
		if phase == state.Added && w == attach && (got == doDel) == a.sameSandbox {
			fail("another sandbox's is deleted, this one's is not")
		}
		if a.bare && (got == doOpen) != (!a.gateOpen && w != forget) {
			fail("what has no network of ours is ready from Prepare on")
		}
		if (got == doOpen) && !a.bare && (phase != state.Added || a.gateOpen || w == attach && !a.sameSandbox) {
			fail("a gate is opened for what is attached as it should be")
		}
		if (phase == state.Deleting || phase == state.Restoring) && got == none {
			fail("what is owed is never forgotten")
		}
		if got == doRestore && phase != state.Restoring || phase == state.Restoring && got == doDel {
			fail("a device is restored after its DEL, which is not run again")
		}
		if (got == doGiveUp) != ((phase == state.Deleting || phase == state.Restoring) && a.triesExhausted && a.netnsGone) {
			fail("given up is what was tried and what nobody can use")
		}
		if (got == doClear) != (phase == state.Undeleted && a.cleared) {
			fail("an administrator clears what was given up, and nothing else")
		}
		if a.deviceInUse && got == doDelAgain {
			fail("a DEL would take the device from another")
		}
		if !a.retryDue && (got == doDel && !attached || got == doDelAgain || got == doRestore) {
			fail("what has failed has a back-off")
		}
	})
}

// recordAndView is a record whose attachments have those phases, and a world that goes with it.
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

func TestReconcileReturnsNextStep(t *testing.T) {
	type phases = []state.Phase
	p, adding, added, deleting, gone := state.Prepared, state.Adding, state.Added, state.Deleting, state.Undeleted
	restoring := state.Restoring
	for _, test := range []struct {
		name   string
		phases phases
		want   want
		world  func(*claimView)
		step   string
	}{
		{"a new claim is written", phases{p}, keep, func(w *claimView) { w.unsaved = true }, "save"},
		{"it waits for a sandbox", phases{p, p}, keep, nil, ""},
		{"all networks at once", phases{p, p}, attach, nil, "ADD [0 1]"},
		{"those that lack", phases{added, p}, attach, nil, "ADD [1]"},
		{"an unwritten record comes before ADD", phases{p}, attach, func(w *claimView) { w.unsaved = true }, "save"},
		{"and after DEL", phases{added}, detach, func(w *claimView) { w.unsaved = true }, "DEL [0]"},
		{"what is left comes before ADD", phases{p, adding}, attach, nil, "DEL [1]"},
		{"also while it cannot be deleted", phases{p, deleting}, attach, func(w *claimView) { w.attachments[1].retryDue = false }, "wait"},
		{"a failure holds up no DEL", phases{added}, forget, func(w *claimView) { w.mayRetry = false }, "DEL [0]"},
		{"a failure is told once nothing is left to delete", phases{added, adding}, detach, func(w *claimView) { w.attachError = true }, "DEL [0 1]"},
		{"then it is", phases{p, p}, detach, func(w *claimView) { w.attachError = true }, "record error"},
		{"a closed gate is opened", phases{added, added}, keep, func(w *claimView) { w.attachments[1].gateOpen = false }, "open [1]"},
		{"forgotten once nothing is owed", phases{p, p}, forget, nil, "forget"},
		{"not before", phases{p, deleting}, forget, func(w *claimView) { w.attachments[1].retryDue = false }, "wait"},
		{"what cannot be given up holds up no DEL", phases{deleting, added}, forget, func(w *claimView) {
			w.mayRetry, w.attachments[0] = false, attachmentView{triesExhausted: true, netnsGone: true}
		}, "DEL [1]"},
		{"given up", phases{p, deleting}, forget, func(w *claimView) { w.attachments[1] = attachmentView{triesExhausted: true, netnsGone: true} }, "give up [1]"},
		{"a device is restored after its DEL", phases{restoring, p}, forget, nil, "restore [0]"},
		{"and after the others' DELs", phases{restoring, deleting}, detach, nil, "DEL [1]"},
		{"while they have a back-off", phases{restoring, deleting}, detach, func(w *claimView) { w.attachments[1].retryDue = false }, "restore [0]"},
		{"it may take its time to come back", phases{restoring}, forget, func(w *claimView) { w.attachments[0].retryDue = false }, "wait"},
		{"before another sandbox gets it", phases{p, restoring}, attach, nil, "restore [1]"},
		{"a device is given up", phases{restoring}, forget, func(w *claimView) { w.attachments[0] = attachmentView{triesExhausted: true, netnsGone: true} }, "give up [0]"},
		{"what is undeleted is deleted", phases{gone}, keep, nil, "DEL again [0]"},
		{"when the claim needs nothing", phases{gone, added}, detach, nil, "DEL [0]"},
		{"the claim ends without it", phases{gone, p}, forget, nil, "forget"},
		{"while its ADD has a back-off", phases{gone, p}, attach, func(w *claimView) { w.mayRetry = false }, "DEL again [0]"},
		{"while another DEL has one", phases{gone, deleting}, detach, func(w *claimView) { w.attachments[0].retryDue = false }, "DEL again [0]"},
		{"or has another sandbox", phases{gone, p}, attach, func(w *claimView) { w.undeleted[0].retryDue = false }, "ADD [0]"},
		{"unless its device is another's", phases{gone}, keep, func(w *claimView) { w.undeleted[0].deviceInUse = true }, ""},
		{"an administrator has cleared it", phases{gone}, keep, func(w *claimView) { w.undeleted[0].cleared = true }, "clear [0]"},
		{"a new record is written first", phases{gone, p}, keep, func(w *claimView) { w.undeleted[0].cleared, w.neverSaved = true, true }, "save"},
		{"then it is forgotten", nil, keep, nil, "forget"},
	} {
		record, now := recordAndView(test.phases...)
		if test.world != nil {
			test.world(&now)
		}
		s := reconcile(record, goal{want: test.want}, now)
		got := string(s.do)
		if s.at != nil {
			got += fmt.Sprint(" ", s.at)
		}
		difftest.Same(t, test.name, got, test.step)
	}
}

// What has failed is not tried again at once, whatever it was: DELs and restoring have pauses of
// their own.
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

// Whatever the world is like, each step leads on: with DELs that succeed a claim that is
// to be attached is, and one that is to be forgotten is, in a few steps.
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

// asTable shows the rules for README.md.
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

// diagram shows the phases, and what leads from one to another, for README.md.
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

func TestReadmeShowsRules(t *testing.T) {
	difftest.Contains(t, difftest.Read(t, "README.md"), asTable(), diagram())
}

// A step may fail when its claim is wanted otherwise already: Unprepare must not get the
// error of a save that Prepare began.
func TestFailureDoesNotAffectNewGoal(t *testing.T) {
	e := newEngine(t)
	for _, forgotten := range []bool{false, true} {
		c := newClaim(&state.Claim{UID: "u1"})
		e.table.claims["u1"] = c
		save, before := step{do: doSave}, goal{want: keep}
		lane, ok := e.worker.begin(c, save, before)
		if !ok {
			t.Fatal("it does not begin")
		}
		if forgotten {
			e.table.do(func() { e.table.forget(c) })
		}
		e.worker.end(c, save, before, lane, errors.New("the disk is full"))
		if (c.failure == retry{}) != forgotten {
			t.Errorf("forgotten %v: %+v", forgotten, c.failure)
		}
	}
}

// Otherwise the gates that are open by then would keep the metadata that somebody has written over.
func TestRewriteOpensAllGatesTogether(t *testing.T) {
	e := newEngine(t)
	c := newClaim(&state.Claim{UID: "u1", Attachments: []state.Attachment{{Phase: state.Added}, {Phase: state.Added}}})
	e.table.claims["u1"] = c
	c.rewriteMetadata = true
	for _, s := range []step{{do: doOpen, at: []int{0}}, {do: doOpen, at: []int{0, 1}, rewriteMetadata: true}} {
		if _, ok := e.worker.begin(c, s, goal{want: keep}); ok != s.rewriteMetadata {
			t.Errorf("%+v begins: %t", s, ok)
		}
	}
}

func newEngine(t *testing.T) *Engine {
	t.Helper()
	dir := t.TempDir()
	e, err := New(Options{
		Driver: "d.example.com", Dirs: Dirs{StateDir: dir, CacheDir: dir, CDIDir: dir, DeviceInfoDir: dir},
		Node: devices.New(devices.Options{}), Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	difftest.Must(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}
