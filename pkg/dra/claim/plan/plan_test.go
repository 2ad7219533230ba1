package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func allWants() []Want { return []Want{Keep, Attach, Detach, Forget} }

// forEachView calls f with each combination of phase, want and view of one attachment.
func forEachView(f func(phase state.Phase, w Want, a AttachmentView)) {
	for _, phase := range state.Phases() {
		for _, w := range allWants() {
			for bits := range 1 << 9 {
				is := func(n int) bool { return bits&(1<<n) != 0 }
				f(phase, w, AttachmentView{SameSandbox: is(0), SandboxGone: is(1), NetnsGone: is(2), GateOpen: is(3), RetryDue: is(4), TriesExhausted: is(5), DeviceInUse: is(6), Cleared: is(7), Bare: phase == state.Prepared && is(8)})
			}
		}
	}
}

func TestDecideInEachPhaseAndView(t *testing.T) {
	ends := []Want{Detach, Forget}
	forEachView(func(phase state.Phase, w Want, a AttachmentView) {
		got := decide(phase, w, a)
		fail := func(why string) { t.Errorf("%s, %s, %+v: %q: %s", phase, w, a, got, why) }
		attached := phase == state.Adding || phase == state.Added
		if (got == DoAdd) != (phase == state.Prepared && w == Attach && !a.Bare) {
			fail("ADD runs only for prepared attachments that a sandbox wants")
		}
		if attached && slices.Contains(ends, w) && got != DoDel {
			fail("DEL runs at once when the sandbox has ended")
		}
		if attached && w == Keep && !a.SandboxGone && got == DoDel {
			fail("DEL does not run while the sandbox may still exist")
		}
		if attached && w == Keep && a.SandboxGone && got != DoDel {
			fail("DEL runs when the sandbox no longer exists")
		}
		if phase == state.Adding && w == Attach && got != DoDel {
			fail("DEL runs after a failed ADD")
		}
		if phase == state.Added && w == Attach && (got == DoDel) == a.SameSandbox {
			fail("DEL runs for the attachment to another sandbox only")
		}
		if a.Bare && (got == DoOpen) != (!a.GateOpen && w != Forget) {
			fail("the gate of an attachment without a network opens in Prepare")
		}
		if (got == DoOpen) && !a.Bare && (phase != state.Added || a.GateOpen || w == Attach && !a.SameSandbox) {
			fail("other gates open only for attachments to the right sandbox")
		}
		if (phase == state.Deleting || phase == state.Restoring) && got == None {
			fail("a pending DEL or restore is never dropped")
		}
		if got == DoRestore && phase != state.Restoring || phase == state.Restoring && got == DoDel {
			fail("restore runs after DEL, and then DEL does not run again")
		}
		if (got == DoGiveUp) != ((phase == state.Deleting || phase == state.Restoring) && a.TriesExhausted && a.NetnsGone) {
			fail("an attachment is given up only if its tries are exhausted and its network namespace is gone")
		}
		if (got == DoClear) != (phase == state.Undeleted && a.Cleared) {
			fail("only undeleted attachments that an administrator cleared are cleared")
		}
		if a.DeviceInUse && got == DoDelAgain {
			fail("DEL is not retried while another attachment has the device")
		}
		if !a.RetryDue && (got == DoDel && !attached || got == DoDelAgain || got == DoRestore) {
			fail("no retry during a back-off")
		}
	})
}

// recordAndView returns a record whose attachments have these phases, and a matching view. "-late" marks a late network.
func recordAndView(phases ...state.Phase) (*state.Claim, View) {
	record, now := &state.Claim{}, View{MayRetry: true}
	for _, phase := range phases {
		name, late := strings.CutSuffix(string(phase), "-late")
		at, world := state.Attachment{Phase: state.Phase(name), Late: late}, AttachmentView{SameSandbox: true, GateOpen: true, RetryDue: true}
		if phase == state.Undeleted {
			record.Undeleted, now.Undeleted = append(record.Undeleted, at), append(now.Undeleted, world)
		} else {
			record.Attachments, now.Attachments = append(record.Attachments, at), append(now.Attachments, world)
		}
	}
	return record, now
}

// observe changes the view as a word of testdata says.
func (v *View) observe(word string) {
	exhausted := AttachmentView{TriesExhausted: true, NetnsGone: true}
	map[string]func(){
		"unsaved":     func() { v.Unsaved = true },
		"never saved": func() { v.NeverSaved = true },
		"failed":      func() { v.MayRetry = false },
		"ADD error":   func() { v.AttachError = true },
		"closed 1":    func() { v.Attachments[1].GateOpen = false },
		"back-off 0":  func() { v.Attachments[0].RetryDue = false },
		"back-off 1":  func() { v.Attachments[1].RetryDue = false },
		"exhausted 0": func() { v.Attachments[0] = exhausted },
		"exhausted 1": func() { v.Attachments[1] = exhausted },

		"undeleted back-off": func() { v.Undeleted[0].RetryDue = false },
		"undeleted in use":   func() { v.Undeleted[0].DeviceInUse = true },
		"undeleted cleared":  func() { v.Undeleted[0].Cleared = true },
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
		s := Next(record, Goal{Want: Want(part[1])}, now)
		if s.At == nil {
			return []string{fmt.Sprintf("%q", s.Do)}
		}
		return []string{fmt.Sprintf("%q %v", s.Do, s.At)}
	})
}

// While a back-off runs, only DEL and restore can run, because they have their own back-offs.
func TestFailedStepIsNotRepeatedDuringBackOff(t *testing.T) {
	forEachView(func(phase state.Phase, w Want, a AttachmentView) {
		for _, Unsaved := range []bool{true, false} {
			record, now := recordAndView(phase)
			record.StatusOwed, now.MayRetry, now.NeverSaved, now.Unsaved, now.Reported = true, false, Unsaved, Unsaved, true
			for _, list := range [][]AttachmentView{now.Attachments, now.Undeleted} {
				copy(list, []AttachmentView{a})
			}
			s := Next(record, Goal{Want: w}, now)
			if !slices.Contains([]Action{DoDel, DoDelAgain, DoRestore, Wait}, s.Do) {
				t.Errorf("%s, %s, %+v: %q", phase, w, a, s.Do)
			}
		}
	})
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

// asList returns the order of the steps as in README.md.
func asList() string {
	var names []string
	for _, next := range order(&state.Claim{}, Goal{}, View{}, func(Action) bool { return false }) {
		names = append(names, string(next.do))
	}
	return "\n    " + strings.Join(names, ", ") + "\n"
}

func TestReadmeShowsRules(t *testing.T) {
	difftest.Contains(t, difftest.Read(t, "../README.md"), asTable(), asList())
}
