package dra_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/safefile/safefiletest"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

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
		difftest.Is(t, os.WriteFile(fill, make([]byte, 1<<20), 0o600), syscall.ENOSPC)
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

func TestDriverIsReadyOnlyWithRoomForAClaim(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		for name, left := range map[string]int{"records": 3, "leases": 8, "CDI specs": 0} {
			disk := safefiletest.Mount(t, 100)
			r := newRig(t)
			switch name {
			case "records":
				r.options.StateDir = disk.Dir
			case "leases":
				r.options.Devices.Journal = journalIn(disk.Dir, "boot1")
			default:
				r.options.CDIDir = disk.Dir
			}
			agent := r.start()
			must(t, agent.Ready())
			empty := disk.Fill(left)
			if err := agent.Ready(); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s: %d free inodes: got %v", name, left, err)
			}
			empty()
			r.stop()
		}
	})
}

// recordSnapshots returns the records on disk after each step, by name of the step.
func (r *rig) recordSnapshots() map[string]map[string][]byte {
	all := map[string]map[string][]byte{}
	r.reached = func(step string) {
		all[step] = map[string][]byte{}
		for _, name := range r.files("state") {
			if data, err := os.ReadFile(filepath.Join(r.options.StateDir, name)); err == nil {
				all[step][name] = data
			}
		}
	}
	return all
}

// The process may be killed after any step.
func TestNextProcessReadsAndRemovesRecordOfAnyStep(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		all := r.recordSnapshots()
		r.start()
		p.setHook(failAll)
		r.giveUpDEL(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}))
		p.setHook(nil)
		time.Sleep(3 * time.Hour)
		r.expectPhase("Undeleted", 0)
		r.stop()
		records := maps.Clone(all)
		if len(records["undeleted"]) != 1 || len(records["deleted again"]) != 1 {
			t.Fatalf("records of %d steps", len(records))
		}
		r.reached = nil
		for step, files := range records {
			for name, record := range files {
				must(t, os.WriteFile(filepath.Join(r.options.StateDir, name), record, 0o600))
			}
			agent := r.start()
			difftest.Same(t, "unreadable records after "+step, agent.Census().Unreadable, 0)
			must(t, agent.Unprepare(t.Context(), "u1"))
			time.Sleep(2 * time.Hour)
			r.stop()
			r.expectNothing()
		}
	})
}

// Undeleted attachments outlive the claim. They also remain if a claim with the same UID is prepared.
func TestClaimPreparedAgainKeepsUndeletedAttachments(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.start()
		p.setHook(failSandbox("s1"))
		claim := r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""})
		r.giveUpDEL(claim)
		for _, id := range []string{"s2", "s3"} {
			r.prepare(claim)
			sb := r.runSandbox(id, "pod")
			r.start() // the new process reads the record
			r.expectPhase("Undeleted", 1)
			r.expectPhase("Added", 1)
			r.endPod(sb)
			r.unprepare("u1")
			waitIdle()
			r.expectPhase("Prepared", 0)
		}
		p.setHook(nil)
		time.Sleep(2 * time.Hour)
		r.expectPhase("Undeleted", 0)
		r.expectNothing()
	})
}
