package dra_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra/state"
)

// snapshots are the record of a claim as each step left it on disk, by the step.
func (r *rig) snapshots(uid string) map[string][]byte {
	all := map[string][]byte{}
	r.step = func(step string) {
		if data, err := os.ReadFile(filepath.Join(r.options.StateDir, uid+".json")); err == nil {
			all[step] = data
		}
	}
	return all
}

// A kill may come behind any step. Between the last DEL of what was given up and the end
// of the record there is a moment at which it holds nothing.
func TestWhateverStepARecordIsOfTheNextAgentReadsAndForgetsIt(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		all := r.snapshots("u1")
		agent := r.start()
		p.set(always)
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
		sb := r.sandbox("s1", "pod")
		_ = r.runPod(sb)
		r.endPod(sb)
		r.unprepared("u1")
		p.set(nil)
		time.Sleep(3 * time.Hour)
		if got := agent.Census().Phases["Abandoned"]; got != 0 {
			t.Fatalf("%d abandoned", got)
		}
		r.stop()
		records := maps.Clone(all)
		if len(records["deleted"]) == 0 || len(records["abandoned"]) == 0 {
			t.Fatalf("of the steps there are %d", len(records))
		}
		r.step = nil
		for step, record := range records {
			must(t, os.WriteFile(filepath.Join(r.options.StateDir, "u1.json"), record, 0o600))
			agent := r.start()
			if problems := agent.Problems(); len(problems) > 0 {
				t.Errorf("after %q: %v", step, problems)
			}
			must(t, agent.Unprepare(t.Context(), "u1"))
			time.Sleep(2 * time.Hour)
			r.stop()
			r.expectNothing()
		}
	})
}

// The pods of a claim may have gone before any of them was attached.
func TestARecordOfNoPodIsRead(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		agent := r.start()
		claim := r.claimOf("a", "u1", "pod", want{"x", "net1", ""})
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, r.claimOf("a", "u1", "other").Status.ReservedFor...)
		r.prepare(claim)
		agent.Reserve("u1", []state.Pod(nil))
		time.Sleep(2 * time.Minute)
		agent = r.start()
		if problems := agent.Problems(); len(problems) > 0 {
			t.Error(problems)
		}
		must(t, agent.Unprepare(t.Context(), "u1"))
		r.expectNothing()
	})
}

// An interface that was attached again meanwhile is none of the administrator's.
func TestWhatIsClearedTakesNothingFromALaterSandbox(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		agent := r.start()
		p.set(func(_, sandbox, _ string) error {
			if sandbox == "s1" {
				return errNoMaster
			}
			return nil
		})
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
		sb := r.sandbox("s1", "pod")
		_ = r.runPod(sb)
		r.endPod(sb)
		time.Sleep(5 * time.Minute)
		must(t, r.runPod(r.sandbox("s2", "pod")))
		_, err := state.ClearLeftovers(r.options.StateDir, "u1")
		must(t, err)
		time.Sleep(2 * time.Minute)
		if got := agent.Census().Phases; got["Abandoned"] != 0 || got["Added"] != 1 {
			t.Errorf("got %v", got)
		}
		if left := r.files("cache"); len(left) != 1 {
			t.Errorf("of what is attached libcni's directory is gone: %q", left)
		}
	})
}
