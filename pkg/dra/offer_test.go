package dra_test

import (
	"testing"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/test/difftest"
)

// devinfoctl compares the digest with the rules file, which may have changed since the driver read it.
func TestStateDirectoryListsRulesAndOfferedDevices(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		n := r.offer("mlx5-switchdev", ownRules+"- ifNames: [eth77]\n  sharing: exclusive\n")
		r.options.Devices.Inventory.File, r.options.Devices.Inventory.Digest = "/rules", "0123"
		agent := r.start()
		expect := func(devices ...state.Offered) {
			t.Helper()
			dra.Survey(agent)
			offer, err := state.ReadOffer(r.options.StateDir)
			must(t, err)
			all := map[string]state.Offered{}
			for _, d := range offer.Devices {
				all[d.Name] = d
			}
			for _, d := range devices {
				difftest.Equal(t, all[d.Name], d)
			}
			offer.Devices = nil
			difftest.Equal(t, *offer, state.Offer{Rules: "/rules", Digest: "0123", Unmatched: []state.UnmatchedRule{
				{Rule: "devices[3] (ifNames: eth77)", Why: "this node has no interface eth77; the nearest is p0", Nearest: "p0"},
			}})
		}
		third := state.Offered{Name: vf3, Ref: hostdev.Ref{Kind: "vf", PCI: "0000:03:00.5"}, Sharing: "exclusive", ResourceName: "example.com/vf"}
		expect(third, state.Offered{Name: sf4, Ref: hostdev.Ref{Kind: "sf", Aux: "mlx5_core.sf.4", IfName: "enp3s0f0s88"}, Sharing: "exclusive"},
			state.Offered{Name: pf, Ref: hostdev.Ref{Kind: "pf", PCI: "0000:03:00.0", IfName: "p0"}, Sharing: "shared"})
		n.others = map[string]string{"0000:03:00.5": "pod ns/x has it"}
		third.ResourceName, third.Why = "", "pod ns/x has it"
		expect(third)
	})
}

// The rule matches an interface that the node does not see while a pod has the PF. The VFs are still visible.
func TestVFsOfPFHeldThroughMultusAreNotPrepared(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		n := newNode(t, "igb-sriov")
		n.rules = "devices: [{drivers: [igbvf], sharing: exclusive}, {ifNames: [eth1], sharing: exclusive}]"
		n.remove("eth1")
		r.options.Devices.Inventory = n.inventory()
		r.options.Devices.Journal = journalIn(r.dir, "boot1")
		r.start()
		r.sandbox("s0", "other")
		r.recordMultus(multusEntry("other", "s0", r.netns("s0"), exclusiveLease("pci-0000:41:00.0")))
		r.prepareFails(ownClaim("u1", "pci-0000-41-10-0", network(`{"type":"sriov"}`)), "pci-0000-41-00-0, its parent: pod ns/other (net7, network sriov-net) has it")
	})
}
