package dra_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/pkg/dra"
)

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
