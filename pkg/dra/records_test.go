package dra_test

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/dra/status"
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
		r.start()
		p.set(always)
		r.abandoned(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
		p.set(nil)
		time.Sleep(3 * time.Hour)
		r.expectPhase("Abandoned", 0)
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

// abandoned has the attachment of a claim to sandbox s1 given up, whose DEL fails.
func (r *rig) abandoned(claim *resourceapi.ResourceClaim) {
	r.t.Helper()
	r.prepare(claim)
	sb := r.sandbox("s1", "pod")
	_ = r.runPod(sb)
	r.endPod(sb)
	r.unprepared(claim.UID)
	quiet() // what was answered may not be on disk yet
}

// abandonedAndCleared is that, cleared by an administrator.
func (r *rig) abandonedAndCleared(p *plugins) {
	r.t.Helper()
	if _, err := state.ClearLeftovers(r.options.StateDir, "u1"); err == nil {
		r.t.Error("nothing is abandoned yet")
	}
	p.set(always)
	r.abandoned(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
	left, err := state.ClearLeftovers(r.options.StateDir, "u1")
	if err != nil || len(left) != 1 || left[0].Sandbox != "s1" {
		r.t.Errorf("got %v, %v", left, err)
	}
}

// lines calls f for each message of a log.
type lines struct {
	slog.Handler
	f func(message string)
}

func (lines) Enabled(context.Context, slog.Level) bool { return true }

func (l lines) Handle(_ context.Context, record slog.Record) error {
	l.f(record.Message)
	return nil
}

// What keeps the agent from forgetting, it meets again after a pause and not at once.
func TestAClearThatFailsIsTriedAgainLater(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		infoFile, tries := "", 0
		r.options.Log = slog.New(lines{slog.DiscardHandler, func(message string) {
			if !strings.Contains(message, "an administrator has cleared") {
				return
			}
			if tries++; tries == 1000 {
				t.Error("1000 tries in no time")
				os.RemoveAll(infoFile)
			}
		}})
		agent := r.start()
		r.abandonedAndCleared(p)
		record := filepath.Join(r.options.StateDir, "u1=s1=net1.json")
		data, err := os.ReadFile(record)
		must(t, err)
		claim, err := state.Parse(record, data)
		must(t, err)
		infoFile = claim.Abandoned().InfoFile
		must(t, os.MkdirAll(filepath.Join(infoFile, "busy"), 0o700))
		tried := p.calls("DEL")
		time.Sleep(time.Hour / 2)
		if agent.Census().Phases["Abandoned"] != 1 || tries < 2 {
			t.Errorf("%v after %d tries", agent.Census(), tries)
		}
		must(t, os.RemoveAll(infoFile))
		time.Sleep(time.Hour / 4)
		if agent.Census().Phases["Abandoned"] != 0 || p.calls("DEL") != tried {
			t.Errorf("%v, %d more DELs", agent.Census(), p.calls("DEL")-tried)
		}
		r.expectNothing()
	})
}

// An agent that dies before the disk has taken it must do it again.
func TestWhatIsClearedIsMarkedUntilItIsOnDisk(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		r.start()
		r.abandonedAndCleared(p)
		record, mark := filepath.Join(r.options.StateDir, "u1=s1=net1.json"), filepath.Join(r.options.StateDir, "u1=s1=net1.cleared")
		must(t, os.Remove(record))
		must(t, os.MkdirAll(filepath.Join(record, "busy"), 0o700))
		time.Sleep(2 * time.Minute)
		if _, err := os.Stat(mark); err != nil {
			t.Error(err)
		}
		must(t, os.RemoveAll(record))
		time.Sleep(time.Hour / 4)
		r.expectPhase("Abandoned", 0)
		r.expectNothing()
	})
}

// unwritable has the disk take no record of that name, until mend; tries counts the steps that
// have failed.
func (r *rig) unwritable(t *testing.T, name string) (block, mend func(), tries *atomic.Int32) {
	record, tries := filepath.Join(r.options.StateDir, name), new(atomic.Int32)
	block = func() {
		must(t, os.RemoveAll(record))
		must(t, os.MkdirAll(filepath.Join(record, "busy"), 0o700))
	}
	mend = func() { wants(t, os.RemoveAll(record)) }
	r.options.Log = slog.New(lines{slog.DiscardHandler, func(message string) {
		if message == "not done" && tries.Add(1) == 1000 {
			t.Error("1000 tries in no time")
			mend()
		}
	}})
	return block, mend, tries
}

// What the disk does not take is tried again after a pause.
func TestADELThatCannotBeGivenUpIsTriedAgainLater(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		block, mend, tries := r.unwritable(t, "u1=s1=net1.json")
		agent := r.start()
		block()
		p.set(failingDEL(""))
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
		sb := r.sandbox("s1", "pod")
		must(t, r.runPod(sb))
		r.endPod(sb)
		time.Sleep(time.Hour)
		if n := tries.Load(); n < 2 || agent.Census().Phases["Deleting"] != 1 {
			t.Errorf("%d tries, %v", n, agent.Census())
		}
		mend()
		r.unprepared("u1")
		p.set(nil)
		time.Sleep(2 * time.Hour)
		r.expectNothing()
	})
}

func TestAStatusThatCannotBeNotedIsNotedLater(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, _ *plugins) {
		block, mend, tries := r.unwritable(t, "u1.json")
		sends, goOn := make(chan struct{}), make(chan struct{})
		r.options.Status = func(context.Context, status.Report) error {
			sends <- struct{}{}
			<-goOn
			return nil
		}
		agent := r.start()
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
		must(t, r.runPod(r.sandbox("s1", "pod")))
		<-sends
		quiet()
		block()
		close(goOn)
		time.Sleep(10 * time.Minute)
		if n := tries.Load(); n < 2 || agent.Census().Status != 1 {
			t.Errorf("%d tries, %v", n, agent.Census())
		}
		mend()
		time.Sleep(2 * time.Minute)
		if agent.Census().Status != 0 || r.record("u1").StatusOwed {
			t.Errorf("it is still owed: %v", agent.Census())
		}
	})
}
