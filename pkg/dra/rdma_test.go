package dra_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/difftest"
)

// listRDMA wants each gate on the node to set the variable so; "" = none sets it.
func (r *rig) listRDMA(gates int, want string) {
	r.t.Helper()
	r.expectFiles("cdi", gates)
	for _, name := range r.files("cdi") {
		spec := difftest.Read(r.t, filepath.Join(r.options.CDIDir, name))
		_, value, _ := strings.Cut(spec, `"DEVINFO_RDMA_DEVICES=`)
		if value, _, _ = strings.Cut(value, `"`); value != want {
			r.t.Errorf("%s lists %q, want %q", name, value, want)
		}
	}
}

// The last of several CDI specs sets the variable of a container, whichever claims it lists.
func TestEachGateListsTheRDMADevicesOfAllClaimsOfThePod(t *testing.T) {
	const all = "mlx5_4:1,mlx5_2:1"
	timeless(t, func(t *testing.T, r *rig, _ *plugins) {
		n := newNode(t, "mlx5-switchdev")
		r.options.Devices.Inventory, r.options.Devices.Finder = n.inventory(), n.finder()
		r.start()
		sb := r.attached(claimFor("u1", by("r", vf0, "net10", "sriov", 0)), claimFor("u2", by("r", vf2, "net2", "sriov", 0)),
			r.claimOf("z", "u3", "pod", want{"x", "net3", ""}))
		r.listRDMA(3, all)

		// An agent that was killed between two gates left one of them as it was.
		r.stop()
		file := filepath.Join(r.options.CDIDir, r.files("cdi")[2])
		must(t, os.WriteFile(file, []byte(strings.ReplaceAll(difftest.Read(t, file), "mlx5_4:1,", "")), 0o644))
		r.start()
		r.hears(sb)
		quiet()
		r.listRDMA(3, all)

		r.unprepared("u2")
		quiet()
		r.listRDMA(2, "mlx5_2:1")
		r.unprepared("u1")
		quiet()
		r.listRDMA(1, "")
		r.endPod(sb)
		r.unprepared("u3")
		r.expectNothing()
	})
}

// A claim without a network has no interface by which its device could be sorted.
func TestRDMADevicesWithoutANetworkAreListedLast(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, _ *plugins) {
		n := newNode(t, "mlx5-switchdev")
		n.rules = strings.Replace(ownRules, "vfIndex == 3", "vfIndex == 0", 1)
		r.options.Devices.Inventory, r.options.Devices.Finder = n.inventory(), n.finder()
		r.start()
		sb := r.attached(ownClaim("u1", vf0, ""), claimFor("u2", by("r", vf2, "net2", "sriov", 0)))
		r.listRDMA(2, "mlx5_4:1,mlx5_2:1")
		r.endPod(sb)
		quiet()
		r.listRDMA(1, "mlx5_2:1")
	})
}
