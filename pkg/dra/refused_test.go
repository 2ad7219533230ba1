package dra_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra/status"
)

// unwritable has the disk take no record of that name, until mend; tries counts the steps that
// have failed.
func (r *rig) unwritable(t *testing.T, name string) (block, mend func(), tries *atomic.Int32) {
	record, tries := filepath.Join(r.options.StateDir, name), new(atomic.Int32)
	block = func() {
		must(t, os.RemoveAll(record))
		must(t, os.MkdirAll(filepath.Join(record, "busy"), 0o700))
	}
	mend = func() { must(t, os.RemoveAll(record)) }
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
		p.set(func(command, _, ifName string) error {
			if command == "DEL" && ifName == "net1" {
				return errNoMaster
			}
			return nil
		})
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
