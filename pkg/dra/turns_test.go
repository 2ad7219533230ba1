package dra_test

import (
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"

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
				r.endPod(second)
				r.unprepared("u1")
				r.expectNothing()
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
