package dra_test

import (
	"path/filepath"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/journal"
)

// prepared is an agent with a claim of a VF, and a count of the VF's holders.
func (r *rig) prepared(t *testing.T) (agent *dra.Agent, holders func() int) {
	t.Helper()
	j := journal.Open(filepath.Join(r.dir, "journal"), "boot1")
	j.NetnsGone = isAway
	r.options.Journal = j
	r.options.Inventory = newNode(t, "mlx5-switchdev").inventory()
	agent = r.start()
	_, err := agent.Prepare(t.Context(), ownClaim("u1", vf0, network(`{"type":"sriov"}`)))
	must(t, err)
	return agent, func() int {
		list, err := j.Holders(journal.OfDevice, "pci-0000:03:00.2")
		must(t, err)
		return len(list)
	}
}

func TestAClaimForWhichNothingWasRunHasNoLease(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		_, holders := r.prepared(t)
		p.mu.Lock()
		p.missing = map[string]bool{"sriov": true}
		p.mu.Unlock()
		if err := r.runPod(r.sandbox("s1", "pod")); err == nil {
			t.Error("it is attached without its plugin")
		}
		if n := holders(); n > 0 {
			t.Errorf("%d have the device", n)
		}
		r.endPod(r.sandbox("s1", "pod"))
		r.unprepared("u1")
	})
}

// What an administrator clears is the earlier sandbox's; the pod has the device by the later one.
func TestClearingWhatWasGivenUpLeavesTheLeaseOfTheNextSandbox(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		agent, holders := r.prepared(t)
		p.set(always)
		_ = r.runPod(r.sandbox("s1", "pod"))
		r.endPod(r.sandbox("s1", "pod"))
		time.Sleep(30 * time.Minute)
		quiet()
		p.set(nil)
		must(t, r.runPod(r.sandbox("s2", "pod")))
		if n := agent.Census().Phases["Abandoned"]; n != 1 {
			t.Fatalf("got %v", agent.Census())
		}
		_, err := state.ClearLeftovers(r.options.StateDir, "u1")
		must(t, err)
		time.Sleep(2 * time.Hour)
		quiet()
		if n := holders(); n != 1 {
			t.Errorf("%d have the device", n)
		}
	})
}

// The scheduler may give a claim another device while what it did to the first is not undone.
func TestAClaimThatIsAllocatedAnewKeepsTheLeaseOfWhatItOwes(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		_, holders := r.prepared(t)
		p.set(always)
		_ = r.runPod(r.sandbox("s1", "pod"))
		r.endPod(r.sandbox("s1", "pod"))
		p.set(func(command, sandbox, _ string) error {
			if sandbox == "s1" {
				return errNoMaster
			}
			return nil
		})
		time.Sleep(30 * time.Minute)
		r.prepare(ownClaim("u1", vf2, network(`{"type":"sriov"}`)))
		second := r.sandbox("s2", "pod")
		must(t, r.runPod(second))
		if first, now := holders(), len(r.holders("pci-0000:03:00.4")); first != 1 || now != 1 {
			t.Errorf("%d have the first device, %d the second", first, now)
		}
		p.set(nil)
		time.Sleep(2 * time.Hour)
		quiet()
		if first, now := holders(), len(r.holders("pci-0000:03:00.4")); first != 0 || now != 1 {
			t.Errorf("once it is restored: %d have the first device, %d the second", first, now)
		}
		r.endPod(second)
		r.unprepared("u1")
		r.expectNothing()
		if n := len(r.holders("pci-0000:03:00.4")); n > 0 {
			t.Errorf("in the end %d have the second device", n)
		}
	})
}
