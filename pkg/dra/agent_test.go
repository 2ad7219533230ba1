package dra_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

func TestStatusIsSentUntilAPIServerAcceptsItAlsoAfterRestart(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		take := r.options.Status
		r.options.Status = func(context.Context, status.Report) error { return errors.New("connection refused") }
		r.start()
		r.attachPod(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}))
		waitIdle()
		difftest.Equal(t, r.agent.Census().PendingStatus, 1)
		r.stop()
		r.options.Status = take
		r.start()
		waitIdle()
		difftest.Equal(t, r.agent.Census().PendingStatus, 0)
		if got := r.lastReport(); got.UID != "u1" || len(got.Devices) != 1 {
			t.Errorf("got %v", got)
		}
	})
}

// A status that the API server rejects, or accepts slowly, must not delay the status of other claims. A status
// that can never succeed is dropped.
func TestEachClaimStatusHasItsOwnBackOff(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		var mu sync.Mutex
		sent := map[string][]float64{}
		var down atomic.Bool
		down.Store(true)
		began := time.Now()
		r.options.Status = func(ctx context.Context, report status.Report) error {
			mu.Lock()
			sent[report.Name] = append(sent[report.Name], time.Since(began).Seconds())
			mu.Unlock()
			switch {
			case report.Name == "slow":
				<-ctx.Done()
				return ctx.Err()
			case report.Name == "gone":
				return status.ErrGone
			case down.Load() && report.Name == "bad":
				return errors.New("connection refused")
			}
			return nil
		}
		agent := r.start()
		for _, name := range []string{"slow", "bad", "good", "gone"} {
			r.prepare(r.claimOf(name, name, name, netRequest{"x", "net1", ""}))
			must(t, r.runPod(r.sandbox(name, name)))
		}
		time.Sleep(1000 * time.Second)
		down.Store(false)
		time.Sleep(300 * time.Second)
		if now := agent.Census(); now.PendingStatus != 1 || now.Phases["Added"] != 4 { // the status of claim slow
			t.Errorf("got %v", now)
		}
		down.Store(true)
		must(t, r.runPod(r.sandbox("again", "bad"))) // a new status starts a new back-off
		time.Sleep(time.Second)
		must(t, r.runPod(r.sandbox("third", "bad"))) // sent immediately, despite the back-off
		waitIdle()
		r.unprepare("bad") // the status of a removed claim is not sent
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		want := map[string][]float64{
			"bad":  {0, .5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5, 127.5, 255.5, 511.5, 811.5, 1111.5, 1300, 1300.5, 1301},
			"good": {0}, "gone": {0}, "slow": {0, 30.5, 61.5},
		}
		sent["slow"] = sent["slow"][:min(3, len(sent["slow"]))]
		difftest.Equal(t, sent, want)
	})
}

// The API server may have accepted a status that is already out of date.
func TestStatusThatChangesDuringSendIsSentAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		var sent atomic.Int32
		r.options.Status = func(_ context.Context, report status.Report) error {
			if report.Name == "0" {
				sent.Add(1)
			}
			time.Sleep(time.Second)
			return nil
		}
		r.start()
		for n := range 9 { // four are sent at a time
			name := fmt.Sprint(n)
			r.prepare(r.claimOf(name, name, name, netRequest{"x", "net1", ""}))
			must(t, r.runPod(r.sandbox(name, name)))
		}
		time.Sleep(time.Second / 2)
		must(t, r.runPod(r.sandbox("again", "0")))
		time.Sleep(time.Minute)
		if n := sent.Load(); n != 2 {
			t.Errorf("sent %d times", n)
		}
	})
}

func TestUnreadableRecordAffectsOnlyItsClaim(t *testing.T) {
	r := newRig(t)
	difftest.Write(t, filepath.Join(r.options.StateDir, "u1.json"), `{"schema":99}`, 0o600)
	difftest.Write(t, filepath.Join(r.options.StateDir, "u2.json"), `{"sch`, 0o600)
	agent := r.start()
	difftest.Equal(t, agent.Census().Unreadable, 2)
	_, err := agent.Prepare(t.Context(), r.claimOf("a", "u1", "pod1", netRequest{"x", "net1", ""}))
	difftest.As[*state.SchemaError](t, err)
	difftest.As[*state.SchemaError](t, agent.Unprepare(t.Context(), "u1"))
	for _, uid := range []string{"u2", "u3"} {
		r.prepare(r.claimOf("a", uid, "pod"+string(uid), netRequest{"x", "net1", ""}))
		must(t, agent.Unprepare(t.Context(), uid))
	}
	difftest.Equal(t, r.files("state"), []string{"u1.json", "u2.json.corrupt"})
}

// onSmallDisk mounts a file system of 64 KiB for the state directory. remount changes its mount flags.
func (r *rig) onSmallDisk(t *testing.T) (remount func(flags uintptr)) {
	t.Helper()
	must(t, os.Mkdir(r.options.StateDir, 0o700))
	must(t, syscall.Mount("tmpfs", r.options.StateDir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() {
		if r.agent != nil {
			r.stop()
		}
		must(t, syscall.Unmount(r.options.StateDir, 0)) // fails if a file is still open
	})
	return func(flags uintptr) {
		var err error
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			// Remounting fails with EBUSY while a worker writes: calls return before everything is on record.
			if err = syscall.Mount("", r.options.StateDir, "", syscall.MS_REMOUNT|flags, ""); !errors.Is(err, syscall.EBUSY) {
				break
			}
		}
		must(t, err)
	}
}

func TestFullDiskRejectsNewClaimsButAllowsDetach(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		r := newRig(t)
		r.onSmallDisk(t)
		agent := r.start()
		old, next := r.sandbox("s1", "pod"), r.sandbox("s2", "pod2")
		r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}), r.claimOf("b", "u2", "pod2", netRequest{"x", "net1", ""}))
		must(t, agent.RunPodSandbox(t.Context(), old))

		fill := filepath.Join(r.options.StateDir, "fill")
		if err := os.WriteFile(fill, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v", err)
		}
		_, err := agent.Prepare(t.Context(), r.claimOf("c", "u3", "pod3", netRequest{"x", "net1", ""}))
		difftest.Is(t, err, syscall.ENOSPC)
		difftest.Is(t, agent.RunPodSandbox(t.Context(), next), syscall.ENOSPC)
		must(t, agent.StopPodSandbox(t.Context(), old))
		difftest.Equal(t, r.callNames(), []string{"ADD s1 net1", "DEL s1 net1"})
		// A worker retries the failed write at the same time, and Unprepare may return that error.
		r.eventually("the claim is unprepared", func() bool { return agent.Unprepare(t.Context(), "u1") == nil })
		must(t, agent.Unprepare(t.Context(), "u3"))

		must(t, os.Remove(fill))
		must(t, agent.RunPodSandbox(t.Context(), next))
		r.expectInterfaces("s2_net1")
	})
}

func TestReadOnlyDiskRejectsNewClaimsAndKeepsPendingDELs(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		r := newRig(t)
		remount := r.onSmallDisk(t)
		agent := r.start()
		sb := r.sandbox("s1", "pod")
		r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}))
		must(t, agent.RunPodSandbox(t.Context(), sb))

		remount(syscall.MS_RDONLY)
		difftest.Is(t, agent.Ready(), syscall.EROFS)
		_, err := agent.Prepare(t.Context(), r.claimOf("c", "u3", "pod3", netRequest{"x", "net1", ""}))
		difftest.Is(t, err, syscall.EROFS)
		must(t, agent.StopPodSandbox(t.Context(), sb))
		r.expectInterfaces()
		difftest.Is(t, agent.Unprepare(t.Context(), "u1"), syscall.EROFS)

		remount(0)
		agent = r.start() // the record on disk still leads to DEL
		r.expectPhase("Added", 1)
		must(t, agent.Unprepare(t.Context(), "u1"))
		r.expectNothing()
	})
}
