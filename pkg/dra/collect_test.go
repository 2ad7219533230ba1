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

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/journal"
)

func TestClaimIsDeletedOnlyIfAPIServerReportsIt(t *testing.T) {
	noAnswer := errors.New("no answer")
	noAPI := apierrors.NewGenericServerResponse(404, "get", resourceapi.Resource("resourceclaims"), "b", "404 page not found", 0, true)
	for name, test := range map[string]struct {
		claim, uid string
		err        error
		gone       bool
	}{
		"there":            {"a", "u1", nil, false},
		"not there":        {"b", "u1", nil, true},
		"made anew":        {"a", "u0", nil, true},
		"no answer":        {"a", "u0", noAnswer, false},
		"none of a missed": {"b", "u1", noAnswer, false},
		"no such API":      {"b", "u1", noAPI, false},
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

// Its sandbox is on no record: only the runtime tells of it.
func TestClaimWithoutNetworkIsKeptUntilRuntimeListsSandboxes(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		r.options.Read = func(context.Context, kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
			return nil, nil
		}
		r.options.Devices.Inventory = newNode(t, "mlx5-switchdev").inventory()
		r.start()
		r.prepare(ownClaim("u1", vf3, ""))
		sb := r.sandbox("s1", "pod")
		kept := func(when string, want int) {
			t.Helper()
			time.Sleep(5 * time.Minute)
			if got := r.files("state"); len(got) != want {
				t.Errorf("%s: %q", when, got)
			}
		}
		kept("no runtime has told of sandboxes", 1)
		r.listSandboxes(sb)
		kept("its pod runs", 1)
		r.endPod(sb)
		kept("its pod has ended", 0)
	})
}

// A kubelet that has lost its memory unprepares nothing. A DEL that is owed needs its record; a
// server that does not answer collects nothing; and with the record go its leases.
func TestClaimIsCollectedOnlyWhenUnusedAndNotAllocated(t *testing.T) {
	vf := network(`{"type":"sriov"}`)
	deallocated := ownClaim("u1", vf0, vf)
	deallocated.Status.Allocation, deallocated.Status.ReservedFor = nil, nil
	for name, last := range map[string]*resourceapi.ResourceClaim{"deleted": nil, "deallocated": deallocated, "allocated anew": ownClaim("u1", vf2, vf)} {
		inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
			now, answer := last, error(nil)
			r.options.Read = func(context.Context, kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
				return now, answer
			}
			r.options.UndeletedEvery = time.Minute
			r.prepareVF0()
			kept := func(when string, leases int) {
				t.Helper()
				time.Sleep(5 * time.Minute)
				if got, held := r.files("state"), r.holders("pci-0000:03:00.2"); len(got) != 1 || len(held) != leases {
					t.Errorf("%s, %s: %q, leases of %q", name, when, got, held)
				}
			}
			must(t, r.runPod(r.sandbox("s1", "pod")))
			kept("its pod runs", 1)
			r.stop()
			r.start() // which has not heard of the sandbox yet
			kept("no runtime has told of sandboxes", 1)
			now, answer = nil, errors.New("no answer")
			r.listSandboxes()
			r.endPod(r.sandbox("s1", "pod"))
			kept("the server does not answer", 0)
			now, answer = ownClaim("u1", vf0, vf), nil
			kept("the claim is there", 0)
			now = last
			other := &journal.Claim{UID: "u0", Part: "net1", Namespace: "ns", Name: "lost", Leases: []journal.DeviceLease{{ID: "pci-0000:03:00.4", Mode: journal.Exclusive}}}
			must(t, r.options.Devices.Journal.Hold(other))
			time.Sleep(5 * time.Minute)
			records, err := r.options.Devices.Journal.Claims()
			must(t, err)
			if len(records) > 0 {
				t.Errorf("%s: leases of %q", name, records)
			}
			r.expectNothing()
		})
	}
}

// The kubelet gives up on a call, and unprepares; the call has not come to its end yet.
func TestCanceledPrepareLeavesNothingAfterUnprepare(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		n := newNode(t, "mlx5-switchdev")
		looks, goOn := make(chan struct{}), make(chan struct{})
		r.options.Devices.Inventory = n.inventory()
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

// The kubelet asks for a claim again while the agent forgets it, with a DEL that was given up.
func TestPrepareDuringEndOfUnprepareIsRecordedOrFails(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		claim := r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""})
		ended := make(chan error, 1)
		meet := sync.OnceFunc(func() {
			go func() {
				_, err := r.agent.Prepare(t.Context(), claim)
				ended <- err
			}()
			time.Sleep(time.Millisecond) // in which it is admitted
		})
		r.step = func(name string) {
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
			t.Error("it is prepared, and not on record")
		}
		r.prepare(claim)
	})
}
