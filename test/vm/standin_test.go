//go:build vm

package vm_test

import (
	"strings"
	"testing"
)

// sriov-cni takes a VF of the real igb, sets what it is told, and gives it back as it was.
func TestStandInForSRIOVGivesTheVFBackAsItWas(t *testing.T) {
	needs(t, "igb")
	run(t, "ip", "link", "set", "enp1s0", "vf", "0", "trust", "on")
	t.Cleanup(func() { run(t, "ip", "link", "set", "enp1s0", "vf", "0", "trust", "off") })
	was := stateOf(t, "0000:01:10.0")
	n := newNetwork(t, "sriov", `[{"type": "sriov", "deviceID": "0000:01:10.0", "vlan": 100, "mac": "02:00:00:00:00:77", "spoofchk": "off", "trust": "on",
		"ipam": {"type": "host-local", "subnet": "192.0.2.0/24", "dataDir": "/run/host-local"}}, `+devinfoBlind+`]`)
	a := n.attachment("pod1", "net1", "")
	a.add(`{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:77", "mtu": 1500, "sandbox": "/run/netns/pod1", "pciID": "0000:01:10.0"}],
		"ips": [{"interface": 0, "address": "192.0.2.2/24", "gateway": "192.0.2.1"}]}`)
	during := stateOf(t, "0000:01:10.0").ByPF
	if during.VLAN != 100 || during.MAC != "02:00:00:00:00:77" || during.SpoofCheck || during.Trust != 1 {
		t.Errorf("the VF is %+v", during)
	}
	if !strings.Contains(run(t, "ip", "-n", "pod1", "addr", "show", "dev", "net1"), "192.0.2.2/24") {
		t.Error("net1 does not have its address")
	}
	other := n.attachment("pod2", "net1", "")
	if _, err := other.tryAdd(); err == nil || !strings.Contains(fullText(err), "pci address 0000:01:10.0 is already allocated") {
		t.Errorf("a second ADD of the VF: %s", fullText(err))
	}
	a.del()
	if is := stateOf(t, "0000:01:10.0"); is.IfName != was.IfName || is.MAC != was.MAC || is.ByPF != was.ByPF {
		t.Errorf("the VF is %+v, it was %+v", is, was)
	}
	nothingBut(t, sriovDir)
}

// A VF on vfio-pci, as sriov-cni has it: the first DEL fails with the namespace there, and
// the VF's lock stays until that is gone.
func TestStandInForSRIOVFailsOnceWithVFIO(t *testing.T) {
	needs(t, "igb")
	n := newNetwork(t, "sriov", `[{"type": "sriov", "deviceID": "0000:01:10.6"}, `+devinfoLast+`]`)
	a := n.attachment("pod1", "net1", "0000:01:10.6")
	result, err := a.tryAdd()
	if err != nil {
		t.Fatal(fullText(err))
	}
	if !strings.Contains(result, `"mtu": 1500`) || !strings.Contains(result, `"sandbox": "/run/netns/pod1"`) {
		t.Errorf("result %s", result)
	}
	if err := a.tryDel(); err == nil || !strings.Contains(fullText(err), "failed to get netlink device with name net1: Link not found") {
		t.Errorf("first DEL: %s", fullText(err))
	}
	a.del()
	nothingBut(t, sriovDir, "pci/0000:01:10.6")
}
