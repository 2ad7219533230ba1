package dra_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra/state"
)

// abandonedAndCleared has an attachment of claim u1 given up, and cleared by an administrator.
func (r *rig) abandonedAndCleared(p *plugins) {
	r.t.Helper()
	p.set(always)
	r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
	sb := r.sandbox("s1", "pod")
	_ = r.runPod(sb)
	r.endPod(sb)
	r.unprepared("u1")
	quiet() // what was answered may not be on disk yet
	_, err := state.ClearLeftovers(r.options.StateDir, "u1")
	must(r.t, err)
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
		agent := r.start()
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
		if got := agent.Census().Phases["Abandoned"]; got != 0 {
			t.Errorf("%d abandoned", got)
		}
		r.expectNothing()
	})
}
