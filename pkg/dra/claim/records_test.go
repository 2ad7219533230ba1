package claim_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/store/storetest"
	"devinfo-cni.io/test/difftest"
)

func TestUnreadableRecordAffectsOnlyItsClaim(t *testing.T) {
	r := dratest.NewRig(t)
	difftest.Write(t, filepath.Join(r.Options.StateDir, "u1.json"), `{"schema":99}`, 0o600)
	difftest.Write(t, filepath.Join(r.Options.StateDir, "u2.json"), `{"sch`, 0o600)
	agent := r.Start()
	_, problems := agent.Records()
	difftest.Same(t, "unreadable records", len(problems), 2)
	_, err := agent.Prepare(t.Context(), r.ClaimOf("a", "u1", "pod1", dratest.Net("x", "net1", "")), 0)
	difftest.As[*state.SchemaError](t, err)
	difftest.As[*state.SchemaError](t, agent.Unprepare(t.Context(), "u1"))
	for _, uid := range []string{"u2", "u3"} {
		r.Prepare(r.ClaimOf("a", uid, "pod"+string(uid), dratest.Net("x", "net1", "")))
		difftest.Must(t, agent.Unprepare(t.Context(), uid))
	}
	difftest.Equal(t, r.Files("state"), []string{"u1.json", "u2.json.corrupt"})
}

// onSmallDisk mounts a file system of 64 KiB for the state directory. remount changes its mount flags.
func onSmallDisk(r *dratest.Rig) (remount func(flags uintptr)) {
	r.T.Helper()
	difftest.Must(r.T, os.Mkdir(r.Options.StateDir, 0o700))
	difftest.Must(r.T, syscall.Mount("tmpfs", r.Options.StateDir, "tmpfs", 0, "size=64k"))
	r.T.Cleanup(func() {
		if r.Agent != nil {
			r.Stop()
		}
		difftest.Must(r.T, syscall.Unmount(r.Options.StateDir, 0)) // fails if a file is still open
	})
	return func(flags uintptr) {
		// Remounting fails with EBUSY while a worker writes: calls return before everything is on record.
		difftest.Eventually(r.T, "remounted", func() bool { return syscall.Mount("", r.Options.StateDir, "", syscall.MS_REMOUNT|flags, "") == nil })
	}
}

func TestFullDiskRejectsNewClaimsButAllowsDetach(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		r := dratest.NewRig(t)
		onSmallDisk(r)
		agent := r.Start()
		old, next := r.Sandbox("s1", "pod"), r.Sandbox("s2", "pod2")
		r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")), r.ClaimOf("b", "u2", "pod2", dratest.Net("x", "net1", "")))
		difftest.Must(t, agent.RunPodSandbox(t.Context(), old))
		// The last write replaces a file, which makes room.
		difftest.Eventually(t, "everything is on record", func() bool { return !r.Record("u1").StatusOwed })

		fill := filepath.Join(r.Options.StateDir, "fill")
		difftest.Is(t, os.WriteFile(fill, make([]byte, 1<<20), 0o600), syscall.ENOSPC)
		_, err := agent.Prepare(t.Context(), r.ClaimOf("c", "u3", "pod3", dratest.Net("x", "net1", "")), 0)
		difftest.Is(t, err, syscall.ENOSPC)
		difftest.Is(t, agent.RunPodSandbox(t.Context(), next), syscall.ENOSPC)
		difftest.Must(t, agent.StopPodSandbox(t.Context(), old))
		difftest.Equal(t, r.CallNames(), []string{"ADD s1 net1", "DEL s1 net1"})
		// A worker retries the failed write at the same time, and Unprepare may return that error.
		difftest.Eventually(t, "the claim is unprepared", func() bool { return agent.Unprepare(t.Context(), "u1") == nil })
		difftest.Must(t, agent.Unprepare(t.Context(), "u3"))

		difftest.Must(t, os.Remove(fill))
		difftest.Must(t, agent.RunPodSandbox(t.Context(), next))
		difftest.Equal(t, r.Files("there"), []string{"s2_net1"})
	})
}

func TestReadOnlyDiskRejectsNewClaimsAndKeepsPendingDELs(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		r := dratest.NewRig(t)
		remount := onSmallDisk(r)
		agent := r.Start()
		sb := r.Sandbox("s1", "pod")
		r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		difftest.Must(t, agent.RunPodSandbox(t.Context(), sb))

		remount(syscall.MS_RDONLY)
		difftest.Is(t, agent.Ready(), syscall.EROFS)
		_, err := agent.Prepare(t.Context(), r.ClaimOf("c", "u3", "pod3", dratest.Net("x", "net1", "")), 0)
		difftest.Is(t, err, syscall.EROFS)
		difftest.Must(t, agent.StopPodSandbox(t.Context(), sb))
		r.ExpectFiles("there", 0)
		difftest.Is(t, agent.Unprepare(t.Context(), "u1"), syscall.EROFS)

		remount(0)
		agent = r.Start() // the record on disk still leads to DEL
		r.ExpectPhase("Added", 1)
		difftest.Must(t, agent.Unprepare(t.Context(), "u1"))
		r.ExpectNothing()
	})
}

// blockRecord makes writes of a claim's record fail. The record on disk comes back with unblock.
func blockRecord(r *dratest.Rig, uid string) (unblock func()) {
	r.T.Helper()
	dratest.WaitIdle()
	return block(r, filepath.Join(r.Options.StateDir, uid+".json"))
}

// What is not written yet is written when the disk takes it. Until then the record on disk leads to another DEL, at most.
func TestPodIsDetachedWhileRecordCannotBeWritten(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		sb := r.AttachPod(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		unblock := blockRecord(r, "u1")
		r.EndPod(sb)
		r.ExpectCalls("DEL", 1)
		difftest.Says(t, r.RunPod(r.Sandbox("s2", "pod")), "record claim ns/a")
		r.ExpectCalls("ADD", 1)
		unblock()
		time.Sleep(2 * time.Minute)
		difftest.Same(t, "phase on disk", r.Record("u1").Attachments[0].Phase, state.Prepared)
		r.EndAndUnprepare(r.RunSandbox("s3", "pod"), "u1")
		r.ExpectCalls("DEL", 2)
	})
}

// Otherwise the next process would not know that the DEL was given up, and the author of the pod would be told twice.
func TestDELIsGivenUpOnlyOnRecord(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		sb := r.AttachPod(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		r.Plugins.SetHook(dratest.Fail("DEL", ""))
		unblock := blockRecord(r, "u1")
		r.EndPod(sb)
		time.Sleep(10 * time.Minute)
		r.ExpectPhase("Deleting", 1)
		difftest.Equal(t, r.Notices(), []string(nil))
		unblock()
		time.Sleep(2 * time.Minute)
		r.ExpectPhase("Undeleted", 1)
		difftest.Equal(t, r.Notices(), []string{claim.NoticeUndeleted})
	})
}

func TestOnlyOneDriverWithValidNameStarts(t *testing.T) {
	r := dratest.NewRig(t)
	r.Start()
	for driver, says := range map[string]string{dratest.Driver: "another driver uses it", "not_a_name": `driver "not_a_name": CDI kind`} {
		r.Options.Driver = driver
		_, err := claim.New(r.Options)
		difftest.Says(t, err, says)
	}
}

func TestDriverIsReadyOnlyWithRoomForAClaim(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		for name, left := range map[string]int{"records": 3, "leases": 8, "CDI specs": 0} {
			disk := storetest.Mount(t, 100)
			r := dratest.NewRig(t)
			switch name {
			case "records":
				r.Options.StateDir = disk.Dir
			case "leases":
				r.Options.Devices.Journal = dratest.JournalIn(disk.Dir, "boot1")
			default:
				r.Options.CDIDir = disk.Dir
			}
			agent := r.Start()
			difftest.Must(t, agent.Ready())
			empty := disk.Fill(left)
			if err := agent.Ready(); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s: %d free inodes: got %v", name, left, err)
			}
			empty()
			r.Stop()
		}
	})
}

// recordSnapshots returns the records on disk after each step, by name of the step.
func recordSnapshots(r *dratest.Rig) map[string]map[string][]byte {
	all := map[string]map[string][]byte{}
	r.Options.Reached = func(step string) {
		all[step] = map[string][]byte{}
		for _, name := range r.Files("state") {
			if data, err := os.ReadFile(filepath.Join(r.Options.StateDir, name)); err == nil {
				all[step][name] = data
			}
		}
	}
	return all
}

// The process may be killed after any step.
func TestNextProcessReadsAndRemovesRecordOfAnyStep(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		all := recordSnapshots(r)
		r.Start()
		r.Plugins.SetHook(dratest.Fail("", ""))
		r.GiveUpDEL(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		r.Plugins.SetHook(nil)
		time.Sleep(3 * time.Hour)
		r.ExpectPhase("Undeleted", 0)
		r.Stop()
		records := maps.Clone(all)
		if len(records["undeleted"]) != 1 || len(records["deleted again"]) != 1 {
			t.Fatalf("records of %d steps", len(records))
		}
		r.Options.Reached = func(string) {}
		for step, files := range records {
			for name, record := range files {
				difftest.Must(t, os.WriteFile(filepath.Join(r.Options.StateDir, name), record, 0o600))
			}
			agent := r.Start()
			_, problems := agent.Records()
			difftest.Same(t, "unreadable records after "+step, len(problems), 0)
			difftest.Must(t, agent.Unprepare(t.Context(), "u1"))
			time.Sleep(2 * time.Hour)
			r.Stop()
			r.ExpectNothing()
		}
	})
}

// Undeleted attachments outlive the claim. They also remain if a claim with the same UID is prepared.
func TestClaimPreparedAgainKeepsUndeletedAttachments(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		r.Plugins.SetHook(dratest.Fail("", "s1"))
		claim := r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", ""))
		r.GiveUpDEL(claim)
		for _, id := range []string{"s2", "s3"} {
			r.Prepare(claim)
			sb := r.RunSandbox(id, "pod")
			r.Start() // the new process reads the record
			r.ExpectPhase("Undeleted", 1)
			r.ExpectPhase("Added", 1)
			r.EndPod(sb)
			r.Unprepare("u1")
			dratest.WaitIdle()
			r.ExpectPhase("Prepared", 0)
		}
		r.Plugins.SetHook(nil)
		time.Sleep(2 * time.Hour)
		r.ExpectPhase("Undeleted", 0)
		r.ExpectNothing()
	})
}

// The record of a claim without a network does not name the sandbox, so only the runtime can report it.
func TestClaimWithoutNetworkIsKeptUntilRuntimeListsSandboxes(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.ReadClaims(nil, nil)
		r.Offer("mlx5-switchdev", "")
		r.Start()
		r.Prepare(dratest.DeviceClaim("u1", dratest.VF3, ""))
		sb := r.Sandbox("s1", "pod")
		kept := func(when string, want int) {
			t.Helper()
			time.Sleep(5 * time.Minute)
			difftest.Same(t, "records: "+when, len(r.Files("state")), want)
		}
		kept("the runtime has listed no sandboxes", 1)
		r.ListSandboxes(sb)
		kept("its pod runs", 1)
		r.EndPod(sb)
		kept("its pod has ended", 0)
	})
}

// A kubelet without its checkpoint unprepares nothing. A record with a pending DEL must stay, and so must all
// records while the API server does not answer. The leases end with the record.
func TestClaimIsCollectedOnlyWhenUnusedAndNotAllocated(t *testing.T) {
	vf := dratest.Network(`{"type":"sriov"}`)
	deallocated := dratest.DeviceClaim("u1", dratest.VF0, vf)
	deallocated.Status.Allocation, deallocated.Status.ReservedFor = nil, nil
	for name, last := range map[string]*resourceapi.ResourceClaim{
		"deleted": nil, "deallocated": deallocated, "reallocated": dratest.DeviceClaim("u1", dratest.VF2, vf),
		"reallocated for another network": dratest.OnNetwork("other", dratest.DeviceClaim("u1", dratest.VF0, vf)),
	} {
		dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
			r.ReadClaims(last, nil)
			r.Options.UndeletedEvery = time.Minute
			r.UseJournal("mlx5-switchdev", "")
			r.Start()
			r.Prepare(dratest.DeviceClaim("u1", dratest.VF0, vf))
			kept := func(when string, holders ...string) {
				t.Helper()
				time.Sleep(5 * time.Minute)
				difftest.Same(t, name+", records: "+when, r.Files("state"), []string{"u1.json"})
				r.ExpectHolders("pci-0000:03:00.2", holders...)
			}
			difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
			kept("its pod runs", "claim ns/claim-u1")
			r.Start() // the new process does not know the sandbox yet
			kept("the runtime has listed no sandboxes", "claim ns/claim-u1")
			r.ReadClaims(nil, errors.New("no answer"))
			r.ListSandboxes()
			r.EndPod(r.Sandbox("s1", "pod"))
			kept("the server does not answer")
			r.ReadClaims(dratest.DeviceClaim("u1", dratest.VF0, " "+strings.ReplaceAll(vf, ":", " : ")), nil)
			kept("the claim exists")
			r.ReadClaims(last, nil)
			other := &journal.Claim{UID: "u0", Part: "net1", Namespace: "ns", Name: "lost", Leases: []journal.DeviceLease{{ID: "pci-0000:03:00.4", Mode: journal.Exclusive}}}
			difftest.Must(t, r.Options.Devices.Journal.Hold(other))
			time.Sleep(5 * time.Minute)
			records, err := r.Options.Devices.Journal.Claims()
			difftest.Must(t, err)
			difftest.Same(t, name+": leases", records, []string(nil))
			r.ExpectNothing()
		})
	}
}

// The kubelet cancels Prepare and calls Unprepare while Prepare still runs.
func TestCanceledPrepareLeavesNothingAfterUnprepare(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		n := r.Offer("mlx5-switchdev", "")
		looks, goOn := make(chan struct{}), make(chan struct{})
		r.Options.Devices.Inventory.Host = func() (inventory.Host, error) {
			close(looks)
			<-goOn
			return n.Host()
		}
		agent := r.Start()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := agent.Prepare(ctx, dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`)), 0)
			ended <- err
		}()
		<-looks
		cancel()
		difftest.Must(t, agent.Unprepare(t.Context(), "u1"))
		close(goOn)
		difftest.Is(t, <-ended, context.Canceled)
		dratest.WaitIdle()
		r.ExpectNothing()
	})
}

// The kubelet prepares a claim again while the worker removes it, and an undeleted attachment remains.
func TestPrepareDuringEndOfUnprepareIsRecordedOrFails(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		claim := r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", ""))
		ended := make(chan error, 1)
		meet := sync.OnceFunc(func() {
			go func() {
				_, err := r.Agent.Prepare(t.Context(), claim, 0)
				ended <- err
			}()
			time.Sleep(time.Millisecond) // until Prepare has added the claim to the table
		})
		r.Options.Reached = func(name string) {
			if name == "forgotten" {
				meet()
			}
		}
		r.Start()
		r.Plugins.SetHook(dratest.Fail("", ""))
		r.GiveUpDEL(claim)
		err := <-ended
		dratest.WaitIdle()
		if err == nil && len(r.Record("u1").Attachments) != 1 {
			t.Error("the claim is prepared but not on record")
		}
		r.Prepare(claim)
	})
}
