package dra_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/state"
)

// A claim keeps its UID when it is deallocated, and may keep its pod. The kubelet prepares
// it anew, or not even that, if it takes it for prepared.
func TestAClaimThatIsAllocatedAnewIsAttachedWithItsNewDevice(t *testing.T) {
	for _, told := range []string{"by the kubelet", "by the API server"} {
		timeless(t, func(t *testing.T, r *rig, _ *plugins) {
			var changed func(*resourceapi.ResourceClaim)
			r.options.Watch = func(ctx context.Context, _ kubeletplugin.NamespacedObject, tell func(*resourceapi.ResourceClaim)) {
				changed = tell
				<-ctx.Done()
			}
			r.options.Inventory = newNode(t, "mlx5-switchdev").inventory()
			agent := r.start()
			r.prepare(ownClaim("u1", vf0, network(`{"type":"sriov"}`)))
			quiet()
			first := r.sandbox("s1", "pod")
			must(t, r.runPod(first))
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
			if n := agent.Census().Phases["Added"]; n != 0 {
				t.Errorf("%s: %d are attached", told, n)
			}
		})
	}
}

// The kubelet, which is slow to say what others have while it starts, prepares the claim meanwhile:
// what it takes for prepared stays so, and what it has since heard of counts.
func TestASlowWatchUndoesNoPrepare(t *testing.T) {
	for name, failure := range map[string]error{"it fails": errors.New("pod-resources: no answer"), "it succeeds": nil} {
		timeless(t, func(t *testing.T, r *rig, _ *plugins) {
			var changed func(*resourceapi.ResourceClaim)
			r.options.Watch = func(ctx context.Context, _ kubeletplugin.NamespacedObject, tell func(*resourceapi.ResourceClaim)) {
				changed = tell
				<-ctx.Done()
			}
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
