package dra_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/state"
)

// snapshots are the records as each step left them on disk, by the step.
func (r *rig) snapshots() map[string]map[string][]byte {
	all := map[string]map[string][]byte{}
	r.step = func(step string) {
		all[step] = map[string][]byte{}
		for _, name := range r.files("state") {
			if data, err := os.ReadFile(filepath.Join(r.options.StateDir, name)); err == nil {
				all[step][name] = data
			}
		}
	}
	return all
}

// A kill may come behind any step. Between two of them a DEL is owed by two records.
func TestWhateverStepARecordIsOfTheNextAgentReadsAndForgetsIt(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		all := r.snapshots()
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
		if len(records["apart"]) != 2 || len(records["abandoned"]) != 2 {
			t.Fatalf("of the steps there are %d", len(records))
		}
		r.step = nil
		for step, files := range records {
			for name, record := range files {
				must(t, os.WriteFile(filepath.Join(r.options.StateDir, name), record, 0o600))
			}
			agent := r.start()
			if problems := dra.Problems(agent); problems > 0 {
				t.Errorf("after %q: %d problems", step, problems)
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
		if problems := dra.Problems(agent); problems > 0 {
			t.Errorf("%d problems", problems)
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
