package dra_test

import (
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/dra/state"
)

// A device whose DEL has failed is not offered: not while the claim is there, so that the
// scheduler knows in time, nor once the DEL was given up, nor by the next agent.
func TestADeviceWhoseDELFailsIsNotOffered(t *testing.T) {
	t.Parallel()
	all, none := []resourceapi.Device{{Name: "cni-0"}}, []resourceapi.Device{} // of a slice that stays
	r, p := newRig(t), newPlugins()
	client := server(drop)
	r.options.Exec, r.options.DelTries = p, 2
	r.kubelet(client, 1)
	published(t, client, all)
	p.set(always)
	r.prepare(exclusively(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}), "cni-0"))
	sb := r.sandbox("s1", "pod")
	if r.runPod(sb) == nil {
		t.Fatal("no error")
	}
	published(t, client, none)
	r.endPod(sb)
	r.unprepared("u1")
	r.eventually("it is given up", func() bool { return r.agent.Census().Phases["Abandoned"] == 1 })
	published(t, client, none)
	next := server(drop)
	r.kubelet(next, 1)
	published(t, next, none)
	_, err := state.ClearLeftovers(r.options.StateDir, "u1")
	must(t, err)
	published(t, next, all)
}

// The scheduler may have allocated the device before it was withheld, and what two claims
// have in common may be known by the device-info only.
func TestNoDELTakesADeviceFromAnotherClaim(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		agent := r.start()
		p.set(failing("s1"))
		r.abandoned(exclusively(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}), "cni-0"))
		r.prepare(exclusively(r.claimOf("b", types.UID("u2"), "next", want{"x", "net1", ""}), "cni-0"))
		next := r.ran("s2", "next")
		tried := p.calls("DEL s1")
		time.Sleep(5 * time.Hour)
		r.expectCalls("DEL s1", tried)
		r.endPod(next)
		r.unprepared("u2")
		p.set(nil)
		time.Sleep(2 * time.Hour)
		quiet()
		if n := p.calls("DEL s1"); n != tried+1 || agent.Census().Phases["Abandoned"] != 0 {
			t.Errorf("%d more DELs, %v", n-tried, agent.Census())
		}
		r.expectNothing()
	})
}
