package dra_test

import (
	"context"
	"errors"
	"sync"
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
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/test/difftest"
)

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
