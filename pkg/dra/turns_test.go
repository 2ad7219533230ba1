package dra_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/state"
)

func TestAClaimIsHandedOverWhenItsHolderHasEnded(t *testing.T) {
	for name, atOnce := range map[string]bool{"reserved for both at first": true, "reserved for the second one later": false} {
		t.Run(name, func(t *testing.T) {
			timeless(t, func(t *testing.T, r *rig, p *plugins) {
				agent := r.start()
				claim, both := r.claimOf("a", "u1", "one", want{"x", "net1", ""}), r.claimOf("a", "u1", "one", want{"x", "net1", ""})
				both.Status.ReservedFor = append(both.Status.ReservedFor, r.claimOf("a", "u1", "two").Status.ReservedFor...)
				if atOnce {
					claim = both
				}
				r.prepare(claim)
				first, second := r.sandbox("s1", "one"), r.sandbox("s2", "two")
				must(t, r.runPod(first))
				agent.Reserve("u1", pods(both))
				must(t, r.runPod(second))
				must(t, r.admits(first, "u1_x"))
				says(t, r.admits(second, "u1_x"), "claim ns/a, request x, is held by pod ns/one")
				r.prepare(both) // the kubelet was restarted
				r.endPod(first)
				time.Sleep(5 * time.Minute)
				if got := p.left(); len(got) > 0 {
					t.Errorf("handed over while the holder is there: %q", got)
				}
				agent.Reserve("u1", pods(both)[1:])
				time.Sleep(5 * time.Minute)
				if got := p.left(); len(got) != 1 || got[0] != "s2 net1" {
					t.Errorf("there: %q", got)
				}
				must(t, r.admits(second, "u1_x"))
				r.ends(second, "u1")
			})
		})
	}
}

// The runtime lists its sandboxes in any order.
func TestPodsThatShareAClaimKeepTheirTurnsWhenTheRuntimeIsBack(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		agent := r.start()
		claim := r.claimOf("a", "u1", "one", want{"x", "net1", ""})
		claim.Status.ReservedFor = append(claim.Status.ReservedFor,
			append(r.claimOf("a", "u1", "two").Status.ReservedFor, r.claimOf("a", "u1", "three").Status.ReservedFor...)...)
		r.prepare(claim)
		first, second, third := r.sandbox("s1", "one"), r.sandbox("s2", "two"), r.sandbox("s3", "three")
		for _, sb := range []*api.PodSandbox{first, second, third} {
			must(t, r.runPod(sb))
		}
		_, err := agent.Synchronize(t.Context(), []*api.PodSandbox{third, second, first}, nil)
		must(t, err)
		r.endPod(first)
		agent.Reserve("u1", pods(claim)[1:])
		time.Sleep(5 * time.Minute)
		if got := p.left(); len(got) != 1 || got[0] != "s2 net1" {
			t.Errorf("there: %q", got)
		}
	})
}

func pods(claim *resourceapi.ResourceClaim) (list []state.Pod) {
	for _, c := range claim.Status.ReservedFor {
		list = append(list, state.Pod{Namespace: claim.Namespace, Name: c.Name, UID: c.UID})
	}
	return list
}

// watched gives the way to tell of a change of the only claim, once it is prepared.
func (r *rig) watched() (changed func(*resourceapi.ResourceClaim)) {
	var told func(*resourceapi.ResourceClaim)
	r.options.Watch = func(ctx context.Context, _ kubeletplugin.NamespacedObject, tell func(*resourceapi.ResourceClaim)) {
		told = tell
		<-ctx.Done()
	}
	return func(claim *resourceapi.ResourceClaim) { told(claim) }
}

// A claim keeps its UID when it is deallocated, and may keep its pod. The kubelet prepares
// it anew, or not even that, if it takes it for prepared.
func TestAClaimThatIsAllocatedAnewIsAttachedWithItsNewDevice(t *testing.T) {
	for _, told := range []string{"by the kubelet", "by the API server"} {
		timeless(t, func(t *testing.T, r *rig, _ *plugins) {
			changed := r.watched()
			r.options.Inventory = newNode(t, "mlx5-switchdev").inventory()
			r.start()
			r.prepare(ownClaim("u1", vf0, network(`{"type":"sriov"}`)))
			quiet()
			first := r.ran("s1", "pod")
			r.endPod(first)
			anew := ownClaim("u1", vf2, network(`{"type":"sriov"}`))
			if told == "by the kubelet" {
				r.prepare(anew)
			} else {
				changed(anew)
			}
			must(t, r.runPod(r.sandbox("s2", "pod")))
			if at := r.attachment("u1"); at.Phase != state.Added || !strings.Contains(string(at.List), `"0000:03:00.4"`) {
				t.Errorf("%s: %s, %s", told, at.Phase, at.List)
			}
			// A watch that broke may tell again what was before.
			before, now := ownClaim("u1", vf0, network(`{"type":"sriov"}`)), anew.DeepCopy()
			before.ResourceVersion, now.ResourceVersion = "9", "10"
			r.prepare(now)
			changed(before)
			quiet()
			if at := r.attachment("u1"); !strings.Contains(string(at.List), `"0000:03:00.4"`) {
				t.Errorf("%s: of an old allocation: %s", told, at.List)
			}
			// What cannot be done is not done with the device of before.
			changed(ownClaim("u1", "pci-0000-09-00-0", network(`{"type":"sriov"}`)))
			quiet()
			r.expectPhase("Added", 0)
		})
	}
}

// The kubelet, which is slow to say what others have while it starts, prepares the claim meanwhile:
// what it takes for prepared stays so, and what it has since heard of counts.
func TestASlowWatchUndoesNoPrepare(t *testing.T) {
	for name, failure := range map[string]error{"it fails": errors.New("pod-resources: no answer"), "it succeeds": nil} {
		timeless(t, func(t *testing.T, r *rig, _ *plugins) {
			changed := r.watched()
			r.options.Inventory = newNode(t, "mlx5-switchdev").inventory()
			var asked atomic.Int32
			goOn := make(chan struct{})
			r.options.Inventory.Others = func(context.Context) (map[string]string, error) {
				if asked.Add(1) == 2 { // the watch
					<-goOn
					return nil, failure
				}
				return nil, nil
			}
			agent := r.start()
			claim := func(device, version string) *resourceapi.ResourceClaim {
				c := ownClaim("u1", device, network(`{"type":"sriov"}`))
				c.ResourceVersion = version
				return c
			}
			r.prepare(claim(vf0, "8"))
			quiet()
			followed := make(chan struct{})
			go func() {
				changed(claim(vf3, "9"))
				close(followed)
			}()
			quiet()
			r.prepare(claim(vf2, "10"))
			close(goOn)
			<-followed
			quiet()
			must(t, r.runPod(r.sandbox("s1", "pod")))
			if at := r.attachment("u1"); agent.Census().Phases["Added"] != 1 || at.Device != vf2 {
				t.Errorf("%s: %s, %v", name, at.Device, agent.Census())
			}
		})
	}
}

// What is left of it is no matter of the API server's.
func TestAClaimIsWatchedUntilItIsUnprepared(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		var watches atomic.Int32
		r.options.Watch = func(ctx context.Context, _ kubeletplugin.NamespacedObject, _ func(*resourceapi.ResourceClaim)) {
			watches.Add(1)
			<-ctx.Done()
			watches.Add(-1)
		}
		r.start()
		p.set(always)
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
		sb := r.sandbox("s1", "pod")
		_ = r.runPod(sb)
		if n := watches.Load(); n != 1 {
			t.Errorf("%d watches", n)
		}
		r.endPod(sb)
		r.unprepared("u1")
		time.Sleep(5 * time.Minute)
		if n := watches.Load(); n != 0 {
			t.Errorf("%d watches of a claim that is unprepared", n)
		}
	})
}

func TestWhoWaitsForAClaimIsToldByTheAPIServer(t *testing.T) {
	r := newRig(t)
	claim := r.claimOf("a", "u1", "one", want{"x", "net1", ""})
	client := server(nil, claim.DeepCopy())
	r.options.Watch = dra.WatchClaim(client)
	agent := r.start()
	r.prepare(claim)
	first, second := r.sandbox("s1", "one"), r.sandbox("s2", "two")
	must(t, agent.RunPodSandbox(t.Context(), first))
	must(t, agent.RunPodSandbox(t.Context(), second))
	claim.Status.ReservedFor = append(claim.Status.ReservedFor, r.claimOf("a", "u1", "two").Status.ReservedFor...)
	_, err := client.ResourceV1().ResourceClaims("ns").UpdateStatus(t.Context(), claim.DeepCopy(), metav1.UpdateOptions{})
	must(t, err)
	must(t, agent.StopPodSandbox(t.Context(), first))
	claim.Status.ReservedFor = claim.Status.ReservedFor[1:]
	_, err = client.ResourceV1().ResourceClaims("ns").UpdateStatus(t.Context(), claim.DeepCopy(), metav1.UpdateOptions{})
	must(t, err)
	r.eventually("the second pod has it", func() bool { return len(r.files("there")) == 1 && r.files("there")[0] == "s2_net1" })
}
