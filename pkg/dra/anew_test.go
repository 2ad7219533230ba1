package dra_test

import (
	"context"
	"strings"
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
