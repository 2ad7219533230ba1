//go:build vm

package vm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/pkg/cdispec"
)

const devinfoCDI = `{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}, "cdi": true, "strict": true}`

// cdiNode is a device node as CDI has it, with the number that /sys gives.
func cdiNode(t *testing.T, path, dev string) *specs.DeviceNode {
	t.Helper()
	n := &specs.DeviceNode{Path: path, Type: "c", Permissions: "rw"}
	if _, err := fmt.Sscanf(read(t, dev), "%d:%d", &n.Major, &n.Minor); err != nil {
		t.Fatalf("%s: %v", dev, err)
	}
	return n
}

// allow sets the node's cdiDevices.
func allow(t *testing.T, device string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node.json")
	must(t, os.WriteFile(path, fmt.Appendf(nil, `{"cdiDevices": [%q]}`, device), 0o644))
	t.Setenv("DEVINFO_NODE_CONFIG", path)
}

// spec compares the attachment's CDI spec, read as a container runtime reads it.
func (a *attachment) spec(nodes ...*specs.DeviceNode) {
	a.t.Helper()
	path := "/var/run/cdi/devinfo-cni.io-attachment_" + a.rt.ContainerID + ":" + a.rt.IfName + ".json"
	got, err := cdi.ReadSpec(path, 0)
	must(a.t, err)
	for n := range got.Devices { // what is in the file is told by variables too: see pkg/cdispec
		edits := &got.Devices[n].ContainerEdits
		edits.Env = slices.DeleteFunc(edits.Env, func(e string) bool { return strings.HasPrefix(e, "DEVINFO_NET1_") })
	}
	const inside = "/var/run/k8s.cni.cncf.io/devinfo/net1.json"
	want := &specs.Spec{Version: "0.3.0", Kind: "devinfo-cni.io/attachment", Devices: []specs.Device{{
		Name: a.rt.ContainerID + ":" + a.rt.IfName,
		ContainerEdits: specs.ContainerEdits{
			Env:         []string{"DEVINFO_NET1=" + inside},
			DeviceNodes: nodes,
			Mounts:      []*specs.Mount{{HostPath: a.path(), ContainerPath: inside, Options: []string{"bind", "ro", "nosuid", "nodev", "noexec"}}},
		},
	}}}
	same(a.t, path, string(cdispec.Encode(got.Spec)), string(cdispec.Encode(want)))
	a.check()
	a.del()
	if exists(path) {
		a.t.Errorf("%s is still there", path)
	}
	a.silent()
}

func TestCDIOfAVFOnVFIOHasItsGroup(t *testing.T) {
	needs(t, "igb")
	allow(t, "0000:01:00.0")
	a := newNetwork(t, "vfio", `[`+devinfoCDI+`]`).attachment("pod1", "net1", "0000:01:10.6")
	a.add(standalone("/run/netns/pod1", "0000:01:10.6"))
	link, err := os.Readlink("/sys/bus/pci/devices/0000:01:10.6/iommu_group")
	must(t, err)
	group := filepath.Base(link)
	nodes := []*specs.DeviceNode{
		cdiNode(t, "/dev/vfio/vfio", "/sys/class/misc/vfio/dev"), cdiNode(t, "/dev/vfio/"+group, "/sys/class/vfio/"+group+"/dev"),
	}
	devices, _ := filepath.Glob("/sys/bus/pci/devices/0000:01:10.6/vfio-dev/vfio*/dev")
	for _, dev := range devices { // with iommufd
		nodes = append(nodes, cdiNode(t, "/dev/iommu", "/sys/class/misc/iommu/dev"), cdiNode(t, "/dev/vfio/devices/"+filepath.Base(filepath.Dir(dev)), dev))
	}
	a.spec(nodes...)
}

func TestCDIOfAVDPADeviceHasItsNode(t *testing.T) {
	needs(t, "vdpasim", "vpvdpa")
	for _, test := range []struct{ device, allowed, deviceID, pciID string }{
		{"vdpa0", "vdpa0", "vdpa0", ""},
		{"vpvdpa0", "pci/0000:02:00.1", "0000:02:00.1", "0000:02:00.1"},
	} {
		t.Run(test.device, func(t *testing.T) {
			allow(t, test.allowed)
			a := newNetwork(t, "vdpa", `[`+devinfoCDI+`]`).attachment("pod1", "net1", test.deviceID)
			a.add(standalone("/run/netns/pod1", test.pciID))
			path := node(t, test.device)
			a.spec(cdiNode(t, path, "/sys/bus/vdpa/devices/"+test.device+"/"+filepath.Base(path)+"/dev"))
		})
	}
}
