package dra_test

import (
	"strings"
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
				if _, _, err := agent.CreateContainer(t.Context(), first, container("u1_x")); err != nil {
					t.Error(err)
				}
				_, _, err := agent.CreateContainer(t.Context(), second, container("u1_x"))
				if err == nil || !strings.Contains(err.Error(), "claim ns/a is held by pod ns/one") || !strings.Contains(err.Error(), "maxSurge: 0") {
					t.Errorf("got %v", err)
				}
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
				if _, _, err := agent.CreateContainer(t.Context(), second, container("u1_x")); err != nil {
					t.Error(err)
				}
				r.endPod(second)
				r.unprepared("u1")
				r.expectNothing()
			})
		})
	}
}

func pods(claim *resourceapi.ResourceClaim) (list []state.Pod) {
	for _, c := range claim.Status.ReservedFor {
		list = append(list, state.Pod{Namespace: claim.Namespace, Name: c.Name, UID: c.UID})
	}
	return list
}

func TestAContainerIsRefusedAtTheGateOfAnEarlierSandbox(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		agent := r.start()
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
		must(t, r.runPod(r.sandbox("s1", "pod")))
		second := r.sandbox("s2", "pod") // of which nobody told
		for _, c := range []*api.Container{container("u1_x"), {Env: []string{"A=b", "CNI_DRA_GATE_u1_x=u1_x@s1"}}} {
			if _, _, err := agent.CreateContainer(t.Context(), second, c); err == nil {
				t.Error("it was let in")
			}
		}
		time.Sleep(time.Minute) // it is known by now, and attached
		for _, c := range []*api.Container{container("u1_x"), {Env: []string{"A=b", "CNI_DRA_GATE_u1_x=u1_x@s2"}}, {}, container("u1_x_not")} {
			_, _, err := agent.CreateContainer(t.Context(), second, c)
			if unknown := len(c.CDIDevices) > 0 && strings.Contains(c.CDIDevices[0].Name, "not"); (err != nil) != unknown {
				t.Errorf("%v: got %v", c, err)
			}
		}
		if got := p.left(); len(got) != 1 || got[0] != "s2 net1" {
			t.Errorf("there: %q", got)
		}
	})
}
