//go:build vm

package vm_test

import "testing"

// Soft RDMA is no part of a PCI function, though rxe1 is over one's interface: it
// is not in the device information.
func TestSoftRDMAIsNotTheDevices(t *testing.T) {
	needs(t, "igb", "rxe")
	if !exists("/sys/class/infiniband/rxe1") {
		t.Fatal("there is no rxe1")
	}
	a := newNetwork(t, "rdma", `[{"type": "macvlan", "master": "enp1s0"}, `+devinfoBlind+`]`).attachment("pod1", "net1", "")
	a.passes(`{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "mac": "MAC0", "sandbox": "/run/netns/pod1", "pciID": "0000:01:00.0"}]}`,
		`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:01:00.0"}}`)
}

// Interfaces with soft RDMA and no device at all.
func TestSoftRDMAWithoutPCI(t *testing.T) {
	needs(t, "rxe")
	for _, name := range []string{"rxedummy0", "siwveth0"} {
		t.Run(name, func(t *testing.T) {
			a := newNetwork(t, "rdma", `[{"type": "macvlan", "master": "`+name+`"}, `+devinfoBlind+`]`).attachment("pod1", "net1", "")
			a.add(`{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "mac": "MAC0", "sandbox": "/run/netns/pod1"}]}`)
			a.noFile()
			same(t, "warning", a.warnings(), `level=WARN msg="no device found for interface net1" attachment=rdma/pod1/net1`)
			a.ends()
		})
	}
}
