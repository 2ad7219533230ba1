package inventory_test

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// The holder of a device also has the devices on it and its parents. This does not depend on rules, because a PF in
// a pod lacks the interface that rules need.
func TestDeviceIsNotOfferedWhileRelatedDeviceIsHeld(t *testing.T) {
	const (
		vf, vdpa = "pci-0000-65-00-4", "vdpa-vdpa4" // vdpa is on vf
		onlyVFs  = "devices: [{drivers: [igbvf], sharing: exclusive}]"
		onlyVF   = "devices: [{pciAddresses: ['0000:65:00.4'], sharing: exclusive}]"
	)
	igb, mlx5 := read(t, host(t, capturetest.Text(t, "igb-sriov"))), read(t, host(t, capturetest.Text(t, "mlx5-vdpa")))
	away := read(t, host(t, capturetest.Without(capturetest.Text(t, "igb-sriov"), "eth1")))
	const port = "net-eth9" // a further port of the PF
	two := append(slices.Clone(igb), inventory.Device{Name: port, Ref: hostdev.Ref{Kind: hostdev.NIC, IfName: "eth9", PortOf: "0000:41:00.0"}})
	for n := range mlx5 {
		if mlx5[n].Name == vf {
			mlx5[n].IfName = "enp101s0f0v2" // VFs of mlx5 have an interface beside their vDPA device
		}
	}
	held := func(name string, as inventory.SharingMode, others ...string) inventory.DecideInput {
		s := input()
		s.Ours, s.Others = inventory.Published{name: {AllowMultipleAllocations: new(as == inventory.Shared)}}, map[string]string{}
		for _, id := range others {
			s.Others[id] = "pod ns/x has it"
		}
		return s
	}
	type whys map[string]string // by device, part of the reason; "" = it is offered
	for name, test := range map[string]struct {
		devices []inventory.Device
		rules   string
		s       inventory.DecideInput
		want    whys
	}{
		"the PF is a claim's":                {away, onlyVFs, held(pf1, inventory.Exclusive), whys{vf1: pf1 + ", its parent", vf0: ""}},
		"a port of the PF is a claim's":      {two, onlyVFs, held(port, inventory.Exclusive), whys{vf1: pf1 + ", its parent", vf0: ""}},
		"a port of the PF, with VFs":         {two, giveAll, input(), whys{port: "it has 2 devices on it, which would lose their parent"}},
		"the PF is another's":                {away, onlyVFs, held("", "", "0000:41:00.0"), whys{vf1: pf1 + ", its parent", vf0: ""}},
		"pods share the PF":                  {igb, everything, held(pf1, inventory.Shared), whys{vf1: ""}},
		"VFs are another's, and a claim's":   {igb, everything, held("pci-0000-01-10-2", inventory.Exclusive, "0000:01:10.0", "0000:01:10.2"), whys{vf0: "pod ns/x has it", "pci-0000-01-10-2": "", vf1: ""}},
		"the vDPA device is a claim's":       {mlx5, onlyVF, held(vdpa, inventory.Exclusive), whys{vf: vdpa + ", which is on it"}},
		"the vDPA device is another's":       {mlx5, onlyVF, held("", "", "vdpa4"), whys{vf: vdpa + ", which is on it"}},
		"both are named":                     {mlx5, giveAll, input(), whys{vf: vdpa + " on it is offered", vdpa: ""}},
		"the VF is named":                    {mlx5, onlyVF, input(), whys{vf: "", vdpa: "no rule selects it"}},
		"both, and a claim has the VF":       {mlx5, giveAll, held(vf, inventory.Exclusive), whys{vf: "", vdpa: "a claim holds " + vf + ", its parent"}},
		"both, and a claim has the vDPA one": {mlx5, giveAll, held(vdpa, inventory.Exclusive), whys{vf: "a claim holds " + vdpa + ", which is on it", vdpa: ""}},
	} {
		decisions := inventory.Decide(test.devices, rules(t, test.rules), test.s)
		for device, want := range test.want {
			if got := decision(t, decisions, device).Why; !strings.Contains(got, want) || want == "" && got != "" {
				t.Errorf("%s: %s: got %q, want %q", name, device, got, want)
			}
		}
	}
}

// A device that claims hold keeps its published state, regardless of changes to rules and host, but no further claim
// gets it if it is no longer offered. The rule of an exclusive device depends on the interface that it had.
func TestHeldDeviceIsTaintedWhenNotOffered(t *testing.T) {
	before := inventory.PublishedIn(slices.Concat(pool(t, changed(t, "unchanged"), "devices: [{ifNames: [eth1], sharing: shared}]"),
		pool(t, changed(t, "host virtio-vm"), "devices: [{ifNames: [eth0], sharing: exclusive}]")))
	goldentest.Lines(t, "testdata/held.txt", func(line string) []string {
		part := strings.Split(words.Replace(line), " | ")
		device, s := part[0], input()
		s.Ours = inventory.Published{device: before[device]}
		decisions := inventory.Decide(read(t, changed(t, part[1])), rules(t, "devices: ["+part[2]+"]"), s)
		why := decision(t, decisions, device).Why
		now := inventory.PublishedIn(inventory.Slices(decisions, s.Ours))[device]
		if tainted := len(now.Taints) == 1 && now.Taints[0].Key == inventory.TaintNotOffered; tainted != (why != "") {
			t.Errorf("%s: taints %v", line, now.Taints)
		}
		now.Taints = nil
		difftest.Same(t, line+": it does not stay as it was", describe(now), describe(before[device]))
		return []string{cmp.Or(why, "offered")}
	})
}

// The kernel moves an interface back under the name that it had in the pod.
func TestRenamedInterfaceIsSameDevice(t *testing.T) {
	for where, text := range map[string][]byte{"netdevsim-switchdev": capturetest.Text(t, "netdevsim-switchdev"), "two ports": capturetest.Ports("i40e", 2)} {
		before := interfaces(t, text)
		for _, name := range slices.Sorted(maps.Keys(before)) {
			after := interfaces(t, bytes.ReplaceAll(text, []byte(before[name]), []byte("z"+before[name])))
			difftest.Same(t, where+": "+name, after[name], "z"+before[name])
			// While the interface is in a pod, no other interface becomes its device.
			gone := interfaces(t, capturetest.Without(text, before[name]))
			for other, ifName := range before {
				if other != name && gone[other] != ifName {
					t.Errorf("%s: without %s: %s is %q, was %q", where, before[name], other, gone[other], ifName)
				}
			}
		}
	}
}

// interfaces returns the interfaces of a host's devices, by device name.
func interfaces(t *testing.T, text []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, d := range read(t, host(t, text)) {
		if d.IfName != "" {
			all[d.Name] = d.IfName
		}
	}
	return all
}
