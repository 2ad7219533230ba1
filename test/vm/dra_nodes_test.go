//go:build vm

package vm_test

import (
	"testing"
)

func TestDRAVDPAByClaim(t *testing.T) {
	needs(t, "vpvdpa")
	n := newDRANode(t, draRules)
	path := node(t, "vpvdpa0")
	info := vdpaVFInfo("vpvdpa0", "vhost", path, "0000:02:00.1", "0000:02:00.0")

	p := n.podWith("vdpa", "vdpa-vpvdpa0", draNetwork(devinfoLast))
	p.begin()
	p.described(p.container(), info, path, "")
	p.end()
}

// A VF that is on vfio-pci beforehand stays so. The first DEL of sriov fails for it, and the
// next one succeeds.
func TestDRAVFOnVFIOByClaim(t *testing.T) {
	needs(t, "igb")
	n := newDRANode(t, draRules)
	for _, test := range []struct{ name, parameters string }{
		{"sriov", draNetwork(`{"type": "sriov"}, ` + devinfoLast)},
		{"host-device", draNetwork(`{"type": "host-device"}`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			was := stateOf(t, "0000:01:10.6")
			p := n.in(t).podWith("vfio-"+test.name, "pci-0000-01-10-6", test.parameters)
			p.begin()
			p.described(p.container(), pciInfo("0000:01:10.6", "0000:01:00.0"), "/dev/vfio/vfio "+group(t, "0000:01:10.6"), "")
			p.end()
			backAs(t, "0000:01:10.6", was)
		})
	}
}

// With driver: vfio-pci the agent binds the VF to it for the pod, and gives it back to its
// network driver with the name, MAC and MTU that its interface had. DPDK sends back what
// comes from the PF.
func TestDRAVFIsBoundToVFIOForItsPod(t *testing.T) {
	needs(t, "igb")
	t.Cleanup(func() { vfsBack(t) })
	hugepages(t)
	n := newDRANode(t, draRules)
	const podsMAC = "02:00:00:00:00:77"
	for _, test := range []struct{ name, plugins string }{
		{"sriov", `{"type": "sriov", "mac": "` + podsMAC + `"}`}, {"devinfo", devinfoLast},
	} {
		t.Run(test.name, func(t *testing.T) {
			const address = "0000:41:10.0"
			was := stateOf(t, address)
			p := n.in(t).podWith("bound-"+test.name, vf41, `"driver": "vfio-pci", `+draNetwork(test.plugins))
			p.prepare()
			same(t, "driver after Prepare", stateOf(t, address).Driver, "igbvf")
			p.up()
			same(t, "driver in the pod", stateOf(t, address).Driver, "vfio-pci")
			made := p.container()
			p.described(made, pciInfo(address, "0000:41:00.0"), "/dev/vfio/vfio "+group(t, address), "vfio-pci")
			if test.name == "sriov" {
				dpdk := madeOf(p.sandbox.Id, made).start(t, append(shown(t, "A VF on vfio-pci"), swaps...)...)
				answers(t, "enp65s0", podsMAC)
				dpdk.end()
			}
			n.restart() // its record knows what to give back
			p.end()
			backAs(t, address, was)
		})
	}
}
