package dra_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra"
)

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
