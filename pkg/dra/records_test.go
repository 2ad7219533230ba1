package dra_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/safefile/safefiletest"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices/inventory"
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
		difftest.Eventually(t, "the claim is unprepared", func() bool { return agent.Unprepare(t.Context(), "u1") == nil })
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
		r.reached = func(string) {}
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

func TestClaimIsDeletedOnlyIfAPIServerReportsIt(t *testing.T) {
	noAnswer := errors.New("no answer")
	noAPI := apierrors.NewGenericServerResponse(404, "get", resourceapi.Resource("resourceclaims"), "b", "404 page not found", 0, true)
	for name, test := range map[string]struct {
		claim, uid string
		err        error
		gone       bool
	}{
		"exists":                 {"a", "u1", nil, false},
		"deleted":                {"b", "u1", nil, true},
		"created again":          {"a", "u0", nil, true},
		"no answer":              {"a", "u0", noAnswer, false},
		"deleted, but no answer": {"b", "u1", noAnswer, false},
		"no such API":            {"b", "u1", noAPI, false},
	} {
		client := fake.NewClientset(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u1"}})
		if test.err != nil {
			client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.err })
		}
		var claim kubeletplugin.NamespacedObject
		claim.Namespace, claim.Name, claim.UID = "ns", test.claim, "u1"
		if test.uid != "u1" {
			claim.UID = "another"
		}
		now, err := dra.ReadClaim(client)(t.Context(), claim)
		if gone := now == nil && err == nil; gone != test.gone || !errors.Is(err, test.err) {
			t.Errorf("%s: %v, %v", name, now, err)
		}
	}
}

// The record of a claim without a network does not name the sandbox, so only the runtime can report it.
func TestClaimWithoutNetworkIsKeptUntilRuntimeListsSandboxes(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		r.readClaims(func() (*resourceapi.ResourceClaim, error) { return nil, nil })
		r.offer("mlx5-switchdev", "")
		r.start()
		r.prepare(ownClaim("u1", vf3, ""))
		sb := r.sandbox("s1", "pod")
		kept := func(when string, want int) {
			t.Helper()
			time.Sleep(5 * time.Minute)
			difftest.Same(t, "records: "+when, len(r.files("state")), want)
		}
		kept("the runtime has listed no sandboxes", 1)
		r.listSandboxes(sb)
		kept("its pod runs", 1)
		r.endPod(sb)
		kept("its pod has ended", 0)
	})
}

// A kubelet without its checkpoint unprepares nothing. A record with a pending DEL must stay, and so must all
// records while the API server does not answer. The leases end with the record.
func TestClaimIsCollectedOnlyWhenUnusedAndNotAllocated(t *testing.T) {
	vf := network(`{"type":"sriov"}`)
	deallocated := ownClaim("u1", vf0, vf)
	deallocated.Status.Allocation, deallocated.Status.ReservedFor = nil, nil
	for name, last := range map[string]*resourceapi.ResourceClaim{"deleted": nil, "deallocated": deallocated, "reallocated": ownClaim("u1", vf2, vf)} {
		inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
			now, answer := last, error(nil)
			r.readClaims(func() (*resourceapi.ResourceClaim, error) { return now, answer })
			r.options.UndeletedEvery = time.Minute
			r.prepareVF0()
			kept := func(when string, leases int) {
				t.Helper()
				time.Sleep(5 * time.Minute)
				difftest.Same(t, name+", records and leases: "+when, []int{len(r.files("state")), len(r.holders("pci-0000:03:00.2"))}, []int{1, leases})
			}
			must(t, r.runPod(r.sandbox("s1", "pod")))
			kept("its pod runs", 1)
			r.start() // the new process does not know the sandbox yet
			kept("the runtime has listed no sandboxes", 1)
			now, answer = nil, errors.New("no answer")
			r.listSandboxes()
			r.endPod(r.sandbox("s1", "pod"))
			kept("the server does not answer", 0)
			now, answer = ownClaim("u1", vf0, vf), nil
			kept("the claim exists", 0)
			now = last
			other := &journal.Claim{UID: "u0", Part: "net1", Namespace: "ns", Name: "lost", Leases: []journal.DeviceLease{{ID: "pci-0000:03:00.4", Mode: journal.Exclusive}}}
			must(t, r.options.Devices.Journal.Hold(other))
			time.Sleep(5 * time.Minute)
			records, err := r.options.Devices.Journal.Claims()
			must(t, err)
			difftest.Same(t, name+": leases", records, []string(nil))
			r.expectNothing()
		})
	}
}

// The kubelet cancels Prepare and calls Unprepare while Prepare still runs.
func TestCanceledPrepareLeavesNothingAfterUnprepare(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		n := r.offer("mlx5-switchdev", "")
		looks, goOn := make(chan struct{}), make(chan struct{})
		r.options.Devices.Inventory.Host = func() (inventory.Host, error) {
			close(looks)
			<-goOn
			return n.host()
		}
		agent := r.start()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := agent.Prepare(ctx, ownClaim("u1", vf0, network(`{"type":"sriov"}`)))
			ended <- err
		}()
		<-looks
		cancel()
		must(t, agent.Unprepare(t.Context(), "u1"))
		close(goOn)
		difftest.Is(t, <-ended, context.Canceled)
		waitIdle()
		r.expectNothing()
	})
}

// The kubelet prepares a claim again while the worker removes it, and an undeleted attachment remains.
func TestPrepareDuringEndOfUnprepareIsRecordedOrFails(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		claim := r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""})
		ended := make(chan error, 1)
		meet := sync.OnceFunc(func() {
			go func() {
				_, err := r.agent.Prepare(t.Context(), claim)
				ended <- err
			}()
			time.Sleep(time.Millisecond) // until Prepare has added the claim to the table
		})
		r.reached = func(name string) {
			if name == "forgotten" {
				meet()
			}
		}
		r.start()
		p.setHook(failAll)
		r.giveUpDEL(claim)
		err := <-ended
		waitIdle()
		if err == nil && len(r.record("u1").Attachments) != 1 {
			t.Error("the claim is prepared but not on record")
		}
		r.prepare(claim)
	})
}
