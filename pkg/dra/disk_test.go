package dra_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/pkg/link/linktest"
)

// onSmallDisk puts the state on a file system of its own; remount changes its flags.
func (r *rig) onSmallDisk(t *testing.T) (remount func(flags uintptr)) {
	t.Helper()
	must(t, os.Mkdir(r.options.StateDir, 0o700))
	must(t, syscall.Mount("tmpfs", r.options.StateDir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() {
		if r.agent != nil {
			r.stop()
		}
		must(t, syscall.Unmount(r.options.StateDir, 0)) // which fails if a file is still open
	})
	return func(flags uintptr) {
		var err error
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			// Busy while a worker writes: what it was asked for is answered before all is on record.
			if err = syscall.Mount("", r.options.StateDir, "", syscall.MS_REMOUNT|flags, ""); !errors.Is(err, syscall.EBUSY) {
				break
			}
		}
		must(t, err)
	}
}

func TestAFullDiskRefusesWhatIsNewAndHoldsUpNothingOld(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		r := newRig(t)
		r.onSmallDisk(t)
		agent := r.start()
		old, next := r.sandbox("s1", "pod"), r.sandbox("s2", "pod2")
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}), r.claimOf("b", "u2", "pod2", want{"x", "net1", ""}))
		must(t, agent.RunPodSandbox(t.Context(), old))

		fill := filepath.Join(r.options.StateDir, "fill")
		if err := os.WriteFile(fill, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v", err)
		}
		if _, err := agent.Prepare(t.Context(), r.claimOf("c", "u3", "pod3", want{"x", "net1", ""})); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("got %v", err)
		}
		if err := agent.RunPodSandbox(t.Context(), next); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("got %v", err)
		}
		must(t, agent.StopPodSandbox(t.Context(), old))
		if got, want := r.told(), []string{"ADD s1 net1", "DEL s1 net1"}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		// What could not be recorded is tried at the same time, and may be what it is told.
		r.eventually("it is unprepared all the same", func() bool { return agent.Unprepare(t.Context(), "u1") == nil })
		must(t, agent.Unprepare(t.Context(), "u3"))

		must(t, os.Remove(fill))
		must(t, agent.RunPodSandbox(t.Context(), next))
		r.expectThere("s2_net1")
	})
}

func TestAReadOnlyDiskRefusesWhatIsNewAndKeepsWhatIsOwed(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		r := newRig(t)
		remount := r.onSmallDisk(t)
		agent := r.start()
		sb := r.sandbox("s1", "pod")
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
		must(t, agent.RunPodSandbox(t.Context(), sb))

		remount(syscall.MS_RDONLY)
		if err := agent.Ready(); !errors.Is(err, syscall.EROFS) {
			t.Errorf("got %v", err)
		}
		if _, err := agent.Prepare(t.Context(), r.claimOf("c", "u3", "pod3", want{"x", "net1", ""})); !errors.Is(err, syscall.EROFS) {
			t.Errorf("got %v", err)
		}
		must(t, agent.StopPodSandbox(t.Context(), sb))
		r.expectThere()
		if err := agent.Unprepare(t.Context(), "u1"); !errors.Is(err, syscall.EROFS) {
			t.Errorf("got %v", err)
		}

		remount(0)
		agent = r.start() // what is on disk owes the DEL still
		if agent.Census().Phases["Added"] != 1 {
			t.Errorf("got %v", agent.Census())
		}
		must(t, agent.Unprepare(t.Context(), "u1"))
		r.expectNothing()
	})
}
