package dra_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/inventory"
)

// A pod must not cut the node off because the host has begun to use a device since the claim
// was prepared.
func TestWhatTheHostHasBegunToNeedIsNotAttached(t *testing.T) {
	for why, change := range map[string]string{
		"the host needs it: enp3s0f0v0 has a default route": "\n-- netlink/uplinks.json --\n[\"enp3s0f0v0\"]\n",
		"": "",
	} {
		timeless(t, func(t *testing.T, r *rig, p *plugins) {
			n := newNode(t, "mlx5-switchdev")
			r.options.Inventory = n.inventory()
			agent := r.start()
			_, err := agent.Prepare(t.Context(), ownClaim("u1", vf0, network(`{"type":"sriov"}`)))
			must(t, err)
			n.text = append(n.text, change...)
			dra.Survey(agent)
			err = r.runPod(r.sandbox("s1", "pod"))
			if why == "" {
				must(t, err)
				return
			}
			says(t, err, vf0, why)
			if p.calls("") > 0 {
				t.Errorf("%q", p.told)
			}
		})
	}
}

// The node is read for the slices, and by Prepare only if these do not settle it.
func TestPrepareReadsTheNodeOnlyIfItMust(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, _ *plugins) {
		n, reads := newNode(t, "mlx5-switchdev"), 0
		r.options.Inventory = n.inventory()
		read := r.options.Inventory.Host
		r.options.Inventory.Host = func() (inventory.Host, error) { reads++; return read() }
		agent := r.start()
		dra.Survey(agent)
		prepare := func(claim, device, parameters, why string, want int) {
			t.Helper()
			asked := ownClaim(types.UID(claim), device, parameters)
			raw := &asked.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
			*raw = []byte(strings.Replace(string(*raw), "net1", "if-"+claim, 1))
			_, err := agent.Prepare(t.Context(), asked)
			if why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
				t.Errorf("%s: got %v, want %q", device, err, why)
			}
			if reads != want {
				t.Errorf("%s: the node was read %d times, not %d", device, reads, want)
			}
		}
		prepare("u1", vf0, network(`{"type":"sriov"}`), "", 1)
		prepare("u2", sf7, network(`{"type":"host-device","capabilities":{"deviceID":true}}`), "", 1)
		prepare("u3", "pci-0000-03-00-3", network(`{"type":"sriov"}`), "does not offer it", 2)
		n.others = map[string]string{"0000:03:00.4": "pod ns/x has it"}
		prepare("u4", vf2, network(`{"type":"sriov"}`), "pod ns/x has it", 3)
		prepare("u5", "pci-0000-09-00-0", network(`{"type":"sriov"}`), "none of that name", 4)
	})
}
