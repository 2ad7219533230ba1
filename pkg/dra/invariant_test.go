package dra_test

import (
	"context"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/test/difftest"
)

// A claim by name changes its pod, and the next pod has the same interface name by a claim of its own.
func TestInterfaceNameStaysUniqueWhenClaimChangesPod(t *testing.T) {
	for name, then := range map[string]func(r *rig, shared *resourceapi.ResourceClaim){
		"at the start of a sandbox":    func(*rig, *resourceapi.ResourceClaim) {},
		"in the sweep":                 func(*rig, *resourceapi.ResourceClaim) { time.Sleep(5 * time.Minute) },
		"when the kubelet restarts":    func(r *rig, shared *resourceapi.ResourceClaim) { r.prepare(shared) },
		"after a restart of the agent": func(r *rig, _ *resourceapi.ResourceClaim) { r.startSynchronized(); waitIdle() },
	} {
		t.Run(name, bubble(func(t *testing.T, r *rig, p *plugins) {
			shared, own := r.claimOf("shared", "u1", "one", netRequest{"x", "net1", ""}), fromTemplate(r.claimOf("own", "u2", "two", netRequest{"x", "net1", ""}))
			current := map[string]*resourceapi.ResourceClaim{"shared": shared, "own": own}
			r.options.Read = func(_ context.Context, ref kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
				return current[ref.Name], nil
			}
			r.startSynchronized()
			r.prepare(shared)
			first := r.runSandbox("s1", "one")
			current["shared"] = r.reserveFor(shared, "two")
			r.prepare(own)
			r.endPod(first)
			current["shared"].Status.ReservedFor = current["shared"].Status.ReservedFor[1:]
			then(r, current["shared"])
			second := r.sandbox("s2", "two")
			says(t, r.runPod(second), `request "x": claim ns/own already uses ifName "net1"`)
			difftest.Equal(t, p.violations, []string(nil))
			r.endPod(second)
			r.unprepare("u2")
			r.endAndUnprepare(r.runSandbox("s3", "two"), "u1")
		}))
	}
}
