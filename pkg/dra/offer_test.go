package dra_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/journal"
)

// offerOf waits until the state directory says of a device what it should.
func offerOf(t *testing.T, dir, name string, want state.Offered) {
	t.Helper()
	var diff string
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		o, err := state.ReadOffer(dir)
		must(t, err)
		if o == nil {
			continue
		}
		diff = "it is not there"
		for _, d := range o.Devices {
			if d.Name == name {
				diff = cmp.Diff(want, d)
			}
		}
		if diff == "" {
			return
		}
	}
	t.Fatal(diff)
}

func TestTheStateDirectorySaysWhatIsOffered(t *testing.T) {
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	ownKubelet(t, server(nil), r, n, p)
	dir := r.options.StateDir
	third := state.Offered{Name: vf3, Kind: "vf", PCI: "0000:03:00.5", As: "exclusive", ResourceName: "example.com/vf"}
	offerOf(t, dir, vf3, third)
	offerOf(t, dir, sf4, state.Offered{Name: sf4, Kind: "sf", Aux: "mlx5_core.sf.4", IfName: "enp3s0f0s88", As: "exclusive"})
	offerOf(t, dir, pf, state.Offered{Name: pf, Kind: "pf", PCI: "0000:03:00.0", IfName: "p0", As: "shared"})
	n.change(func() { n.others = map[string]string{"0000:03:00.5": "pod ns/x has it"} })
	third.ResourceName, third.Why = "", "pod ns/x has it"
	offerOf(t, dir, vf3, third)
}

func TestTheStateDirectoryNamesTheRulesWithoutADevice(t *testing.T) {
	r, n := newRig(t), newNode(t, "igb-sriov")
	n.rules = "devices: [{drivers: [igbvf], as: exclusive}, {ifNames: [eth77], as: exclusive}]"
	ownKubelet(t, server(nil), r, n, newPlugins())
	var got []state.Idle
	for end := time.Now().Add(3 * time.Minute); got == nil && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		o, err := state.ReadOffer(r.options.StateDir)
		must(t, err)
		if o != nil {
			got = o.Idle
		}
	}
	if diff := cmp.Diff([]state.Idle{{Rule: "devices[1] (ifNames: eth77)", Why: "there is no interface eth77; the nearest is eth7"}}, got); diff != "" {
		t.Error(diff)
	}
}

// The rule goes by what a PF in a pod no longer has, and its VFs are still there.
func TestTheVFsOfAPFThatMultusHasGivenAwayAreNotPrepared(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, _ *plugins) {
		n := newNode(t, "igb-sriov")
		n.rules = "devices: [{drivers: [igbvf], as: exclusive}, {ifNames: [eth1], as: exclusive}]"
		n.without("eth1")
		r.options.Inventory = n.inventory()
		r.options.Journal = journal.Open(filepath.Join(r.dir, "journal"), "boot1")
		r.options.Journal.NetnsGone = isAway
		agent := r.start()
		r.sandbox("s0", "other")
		r.multus(multus("other", "s0", r.netns("s0"), exclusive("pci-0000:41:00.0")))
		_, err := agent.Prepare(t.Context(), ownClaim("u1", igbVF0, network(`{"type":"sriov"}`)))
		says(t, err, igbPF+", which it is on: pod ns/other (net7, network sriov-net) has it")
	})
}
