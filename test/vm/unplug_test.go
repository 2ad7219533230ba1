//go:build vm

package vm_test

import (
	"testing"

	"github.com/containernetworking/cni/libcni"
)

const pf = "0000:41:00.0" // the PF whose VFs the tests may take away

// vfsBack makes the VFs of that PF anew, as the machine had them.
func vfsBack(t *testing.T) {
	t.Helper()
	numVFs(t, pf, 2, map[string]string{"0000:41:10.0": "enp65s0v0", "0000:41:10.2": "enp65s0v1"})
}

const gone = "100: the device-info file names the PCI function 0000:41:10.0, which is not on this node"

// The VF vanishes with its interface from inside the pod. host-device's DEL fails
// without it: so it does without devinfo.
func TestVFUnpluggedBehindHostDevice(t *testing.T) {
	needs(t, "igb")
	t.Cleanup(func() { vfsBack(t) })
	a := newNetwork(t, "unplug", `[{"type": "host-device", "device": "enp65s0v0"}, `+devinfoBlind+`]`).attachment("pod1", "net1", "")
	a.add(moved(t, "enp65s0v0", "net1", "/run/netns/pod1", "0000:41:10.0"))
	write(t, "/sys/bus/pci/devices/"+pf+"/sriov_numvfs", "0")
	eventually(t, "the interface is gone", func() bool { return !inPod("pod1", "net1") })

	same(t, "CHECK", errorText(a.devinfo((*libcni.CNIConfig).CheckNetwork)), gone)
	same(t, "DEL", errorText(a.tryDel()), `999: failed to find "net1" in containerNS: Link not found`)
	a.noFile()
	nothingLeft(t)

	// Once the pod's namespace is gone, so is the last of it.
	a.rt.NetNS = ""
	a.del()
	a.silent()
}

// The same address again, but another VF: it is not in the pod.
func TestVFUnpluggedAndReplaced(t *testing.T) {
	needs(t, "igb")
	a := newNetwork(t, "unplug", `[{"type": "host-device", "capabilities": {"deviceID": true}}, `+devinfoLast+`]`).attachment("pod1", "net1", "0000:41:10.0")
	a.add(moved(t, "enp65s0v0", "net1", "/run/netns/pod1", "0000:41:10.0"))
	vfsBack(t)
	same(t, "CHECK", errorText(a.devinfo((*libcni.CNIConfig).CheckNetwork)),
		"100: interface net1 is no longer in /run/netns/pod1, where ADD found it")
	a.rt.NetNS = ""
	a.del()
	a.silent()
}

// With host-device as delegate its failure is reported, and all else is cleaned.
// The journal keeps the attachment for the retry.
func TestVFUnpluggedFromADelegate(t *testing.T) {
	needs(t, "igb")
	t.Cleanup(func() { vfsBack(t) })
	a := newNetwork(t, "unplug", `[{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true},
		"delegates": [{"type": "host-device", "device": "enp65s0v0"}]}]`).attachment("pod1", "net1", "")
	a.add(moved(t, "enp65s0v0", "net1", "/run/netns/pod1", "0000:41:10.0"))
	write(t, "/sys/bus/pci/devices/"+pf+"/sriov_numvfs", "0")
	eventually(t, "the interface is gone", func() bool { return !inPod("pod1", "net1") })

	same(t, "DEL", errorText(a.tryDel()), `999: delegates[0] (host-device): DEL: failed to find "net1" in containerNS: Link not found`)
	a.noFile()
	if !exists(stateDir + "/attachments/unplug@pod1@net1") {
		t.Error("the journal has forgotten the attachment")
	}
	a.rt.NetNS = ""
	a.del()
	a.silent()
}

func TestVDPAUnplugged(t *testing.T) {
	needs(t, "vdpasim")
	run(t, "vdpa", "dev", "add", "name", "vdpa9", "mgmtdev", "vdpasim_net", "mac", "02:00:00:00:0d:09")
	here := true
	t.Cleanup(func() {
		if here {
			run(t, "vdpa", "dev", "del", "vdpa9")
		}
	})
	drive(t, "vdpa", "vdpa9", "vhost_vdpa")
	a := newNetwork(t, "unplug", `[`+devinfoLast+`]`).attachment("pod1", "net1", "vdpa9")
	a.add(standalone("/run/netns/pod1", ""))
	a.file(vdpaInfo("vdpa9", "vhost", node(t, "vdpa9")))
	run(t, "vdpa", "dev", "del", "vdpa9")
	here = false
	same(t, "CHECK", errorText(a.tryCheck()), "100: the device-info file names the vDPA device vdpa9, which is not on this node")
	a.del()
}
