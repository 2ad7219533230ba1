package dra_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/hostdev"
)

// offerOf waits until the state directory says of a device what it should.
func offerOf(t *testing.T, dir, name string, want state.Offered) {
	t.Helper()
	until(t, func() string {
		for _, d := range offered(t, dir).Devices {
			if d.Name == name {
				return cmp.Diff(want, d)
			}
		}
		return "it is not there"
	})
}

// offered is what the state directory says.
func offered(t *testing.T, dir string) state.Offer {
	t.Helper()
	o, err := state.ReadOffer(dir)
	must(t, err)
	if o == nil {
		return state.Offer{}
	}
	return *o
}

func TestTheStateDirectorySaysWhatIsOffered(t *testing.T) {
	t.Parallel()
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	r.offering(server(nil), n, p)
	dir := r.options.StateDir
	third := state.Offered{Name: vf3, Ref: hostdev.Ref{Kind: "vf", PCI: "0000:03:00.5"}, Sharing: "exclusive", ResourceName: "example.com/vf"}
	offerOf(t, dir, vf3, third)
	offerOf(t, dir, sf4, state.Offered{Name: sf4, Ref: hostdev.Ref{Kind: "sf", Aux: "mlx5_core.sf.4", IfName: "enp3s0f0s88"}, Sharing: "exclusive"})
	offerOf(t, dir, pf, state.Offered{Name: pf, Ref: hostdev.Ref{Kind: "pf", PCI: "0000:03:00.0", IfName: "p0"}, Sharing: "shared"})
	n.change(func() { n.others = map[string]string{"0000:03:00.5": "pod ns/x has it"} })
	third.ResourceName, third.Why = "", "pod ns/x has it"
	offerOf(t, dir, vf3, third)
}

func TestTheStateDirectoryNamesTheRulesWithoutADevice(t *testing.T) {
	t.Parallel()
	r, n := newRig(t), newNode(t, "igb-sriov")
	n.rules = "devices: [{drivers: [igbvf], sharing: exclusive}, {ifNames: [eth77], sharing: exclusive}]"
	r.offering(server(nil), n, newPlugins())
	want := []state.Idle{{Rule: "devices[1] (ifNames: eth77)", Why: "there is no interface eth77; the nearest is eth7", Nearest: "eth7"}}
	until(t, func() string { return cmp.Diff(want, offered(t, r.options.StateDir).Idle) })
}

// The rule goes by what a PF in a pod no longer has, and its VFs are still there.
func TestTheVFsOfAPFThatMultusHasGivenAwayAreNotPrepared(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, _ *plugins) {
		n := newNode(t, "igb-sriov")
		n.rules = "devices: [{drivers: [igbvf], sharing: exclusive}, {ifNames: [eth1], sharing: exclusive}]"
		n.without("eth1")
		r.options.Devices.Inventory = n.inventory()
		r.options.Devices.Journal = journalIn(r.dir, "boot1")
		r.start()
		r.sandbox("s0", "other")
		r.multus(multus("other", "s0", r.netns("s0"), exclusive("pci-0000:41:00.0")))
		r.prepareFails(ownClaim("u1", "pci-0000-41-10-0", network(`{"type":"sriov"}`)), "pci-0000-41-00-0, which it is on: pod ns/other (net7, network sriov-net) has it")
	})
}
