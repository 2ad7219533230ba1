package dra_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/hostdev"
)

// waitOffered waits until the state directory lists a device with these values.
func waitOffered(t *testing.T, dir, name string, want state.Offered) {
	t.Helper()
	waitUntil(t, func() string {
		for _, d := range readOffer(t, dir).Devices {
			if d.Name == name {
				return cmp.Diff(want, d)
			}
		}
		return "the device is not listed"
	})
}

// readOffer returns the offer in the state directory.
func readOffer(t *testing.T, dir string) state.Offer {
	t.Helper()
	o, err := state.ReadOffer(dir)
	must(t, err)
	if o == nil {
		return state.Offer{}
	}
	return *o
}

func TestStateDirectoryListsOfferedDevices(t *testing.T) {
	t.Parallel()
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	r.startOffering(apiServer(nil), n, p)
	dir := r.options.StateDir
	third := state.Offered{Name: vf3, Ref: hostdev.Ref{Kind: "vf", PCI: "0000:03:00.5"}, Sharing: "exclusive", ResourceName: "example.com/vf"}
	waitOffered(t, dir, vf3, third)
	waitOffered(t, dir, sf4, state.Offered{Name: sf4, Ref: hostdev.Ref{Kind: "sf", Aux: "mlx5_core.sf.4", IfName: "enp3s0f0s88"}, Sharing: "exclusive"})
	waitOffered(t, dir, pf, state.Offered{Name: pf, Ref: hostdev.Ref{Kind: "pf", PCI: "0000:03:00.0", IfName: "p0"}, Sharing: "shared"})
	n.change(func() { n.others = map[string]string{"0000:03:00.5": "pod ns/x has it"} })
	third.ResourceName, third.Why = "", "pod ns/x has it"
	waitOffered(t, dir, vf3, third)
}

func TestStateDirectoryListsRulesWithoutDevice(t *testing.T) {
	t.Parallel()
	r, n := newRig(t), newNode(t, "igb-sriov")
	n.rules = "devices: [{drivers: [igbvf], sharing: exclusive}, {ifNames: [eth77], sharing: exclusive}]"
	r.startOffering(apiServer(nil), n, newPlugins())
	want := []state.UnmatchedRule{{Rule: "devices[1] (ifNames: eth77)", Why: "this node has no interface eth77; the nearest is eth7", Nearest: "eth7"}}
	waitUntil(t, func() string { return cmp.Diff(want, readOffer(t, r.options.StateDir).Unmatched) })
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

// devinfoctl compares the digest with the rules file, which may have changed since the driver read it.
func TestOfferHasPathAndDigestOfRules(t *testing.T) {
	r, n := newRig(t), newNode(t, "mlx5-switchdev")
	r.options.Devices.Inventory, r.options.Devices.Finder = n.inventory(), n.finder()
	r.options.Devices.Inventory.File, r.options.Devices.Inventory.Digest = "/rules", "0123"
	dra.Survey(r.start())
	if o := readOffer(t, r.options.StateDir); o.Rules != "/rules" || o.Digest != "0123" || o.Devices == nil {
		t.Errorf("got %+v", o)
	}
}
