//go:build vm

package vm_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/test/undertest"
)

// The VF belongs to the real igb. standin replaces sriov-cni.
func TestExampleSRIOVAttachesVF(t *testing.T) {
	needs(t, "igb")
	r := example{
		name: "sriov", host: "enp1s0v0", deviceID: "0000:01:10.0", pool: poolPCI("0000:01:10.0"), settings: `{}`,
		info: pciInfo("0000:01:10.0", "0000:01:00.0"),
	}.begin(t)
	if len(r.made.IPs) != 1 || !strings.HasPrefix(r.made.IPs[0].Address, "10.56.1.") {
		t.Errorf("result %+v", r.made)
	}
	r.end()
}

// The VF of the real igb is on vfio-pci, in its real IOMMU group. standin replaces sriov-cni, and fails once like it.
// The test runs the pod's own command with few buffers, and its frames arrive at the PF.
func TestExampleSRIOVWithDPDKSendsFrames(t *testing.T) {
	needs(t, "igb")
	hugepages(t)
	const mac = "02:00:00:00:00:33"
	run(t, "ip", "link", "set", "enp1s0", "vf", "3", "mac", mac)
	t.Cleanup(func() { run(t, "ip", "link", "set", "enp1s0", "vf", "3", "mac", "00:00:00:00:00:00") })
	r := example{
		name: "sriov-dpdk", deviceID: "0000:01:10.6", pool: poolPCI("0000:01:10.6"), settings: `{"injectDeviceNodes": true, "allowedDevices": ["0000:01:00.0"]}`,
		info:  pciInfo("0000:01:10.6", "0000:01:00.0"),
		nodes: []string{"/dev/vfio/vfio", group(t, "0000:01:10.6")}, left: []string{"pci/0000:01:10.6"}, // sriov-cni's lock, until the namespace ends
		firstDel: "failed to get netlink device with name net1: Link not found",
	}.begin(t)
	r.command[len(r.command)-1] += " --total-num-mbufs=2048"
	dpdk := adjusted(sandboxID, r.adjustment).start(t, r.command...)
	answers(t, "enp1s0", mac)
	dpdk.End()
	r.end()
	if driver, _ := os.Readlink("/sys/bus/pci/devices/0000:01:10.6/driver"); filepath.Base(driver) != "vfio-pci" {
		t.Errorf("the VF is on %s", driver)
	}
}

// The real host-device moves the virtio PF.
func TestExampleHostDeviceAttachesPF(t *testing.T) {
	needs(t, "vpvdpa")
	example{
		name: "host-device", host: "enp2s0", deviceID: "0000:02:00.0", pool: poolPCI("0000:02:00.0"), settings: `{}`,
		info: `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:02:00.0"}}`,
	}.begin(t).end()
}

// The VF belongs to the real igb. netdevsim is its switch, because no emulated card has one. standin replaces
// ovs-cni. Open vSwitch is real and uses the kernel's datapath, but netdevsim forwards no frames to the VF.
//
// This program replaces devinfo. It differs only in the devlink handle: it requests netdevsim's ports instead of
// igb's. The device plugin writes no file. ovs-cni would fail if it had a path of a missing file.
func TestExampleOVSAttachesRepresentor(t *testing.T) {
	needs(t, "igb", "nsim")
	const representor = "eni1npf0vf1"
	r := example{
		name: "ovs", host: "enp1s0v1", deviceID: "0000:01:10.2", settings: `{}`, binDir: switchDir(t),
		info: representedInfo("0000:01:10.2", representor), port: representor,
	}.begin(t)
	same(t, "VLAN of the port", run(t, "ovs-vsctl", "get", "port", representor, "tag"), "100")
	r.end()
}

// The vDPA device is on a VF of virtio, with the real vp_vdpa and vhost_vdpa. standin, Open vSwitch and netdevsim are
// as in TestExampleOVSAttachesRepresentor. ovs-cni fails without the file, so devinfo must write it before.
func TestExampleVDPAAttachesRepresentor(t *testing.T) {
	needs(t, "vpvdpa", "nsim")
	path := node(t, "vpvdpa0")
	example{
		name: "vdpa", deviceID: "0000:02:00.1", settings: `{"injectDeviceNodes": true, "allowedDevices": ["0000:02:00.0"]}`, binDir: switchDir(t),
		pool: `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vpvdpa0","driver":"vhost","path":"/dev/vhost-vdpa-77","pci-address":"0000:02:00.1"}}`,
		info: fmt.Sprintf(`{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vpvdpa0", "driver": "vhost", "path": %q,
			"pci-address": "0000:02:00.1", "pf-pci-address": "0000:02:00.0", "representor-device": "eni1npf0vf0"}}`, path),
		nodes: []string{path}, port: "eni1npf0vf0",
	}.begin(t).end()
	same(t, "node of the vDPA device", node(t, "vpvdpa0"), path)
}

// switchDir returns a directory with this program as devinfo, and starts Open vSwitch with the bridge br-hw.
func switchDir(t *testing.T) string {
	t.Helper()
	t.Setenv("OVS_RUNDIR", t.TempDir()) // ovs-vsctl uses it too
	database := t.TempDir() + "/conf.db"
	run(t, "modprobe", "openvswitch")
	run(t, "ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema")
	for _, daemon := range [][]string{{"ovsdb-server", database, "--remote=punix:" + os.Getenv("OVS_RUNDIR") + "/db.sock"}, {"/usr/lib/openvswitch-switch/ovs-vswitchd"}} {
		run(t, append(daemon, "--detach", "--pidfile", "--log-file=/dev/null")...)
		t.Cleanup(func() { run(t, "ovs-appctl", "-t", filepath.Base(daemon[0]), "exit") })
		run(t, "ovs-vsctl", "--no-wait", "init")
	}
	run(t, "ovs-vsctl", "add-br", "br-hw")
	t.Cleanup(func() { run(t, "ovs-vsctl", "del-br", "br-hw") })
	t.Setenv("STANDIN_SWITCH", "netdevsim/netdevsim1")
	return withSwitch(t)
}

// bridgeOf returns the bridge of an interface; "" if it is not a port.
func bridgeOf(name string) string {
	bridge, _ := exec.Command("ovs-vsctl", "port-to-br", name).Output()
	return strings.TrimSpace(string(bridge))
}

// In shared mode nobody moves the RDMA device.
func TestExampleRDMALeavesRDMADevice(t *testing.T) {
	rdmaExample(t, example{name: "rdma"}, true)
}

// The kernel is really in exclusive mode.
func TestExampleRDMAExclusiveAttachesRDMADevice(t *testing.T) {
	needs(t, "rxe")
	mode := func(mode string) {
		eventually(t, "RDMA is "+mode, func() bool { // the kernel has ended all other network namespaces
			return exec.Command("rdma", "system", "set", "netns", mode).Run() == nil
		})
	}
	mode("exclusive")
	t.Cleanup(func() { mode("shared") })
	rdmaExample(t, example{name: "rdma-exclusive"}, false)
}

// The VF belongs to a ConnectX, from the captured host mlx5-legacy, because no emulated card has RDMA. Devinfo and
// host-local are real. standin replaces sriov-cni and rdma-cni: it moves a dummy with the VF's name, and removes the
// RDMA device from the captured /sys. The device nodes belong to soft RDMA devices with these names.
func rdmaExample(t *testing.T, e example, stays bool) {
	t.Helper()
	needs(t, "rxe")
	const vf = "0000:3b:00.2"
	tree := captured(t, "mlx5-legacy", "ens1f0np0", "ens1f0v0")
	e.host, e.deviceID, e.pool = "ens1f0v0", vf, poolPCI(vf)
	e.settings = `{"injectDeviceNodes": true, "allowedDevices": ["0000:3b:00.0"], "sysfs": "` + tree + `"}`
	e.info = `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:00.2", "rdma-device": "mlx5_2", "pf-pci-address": "0000:3b:00.0"}}`
	e.nodes = []string{"/dev/infiniband/uverbs2", "/dev/infiniband/rdma_cm"}
	r := e.begin(t)
	rdma := tree + "/bus/pci/devices/" + vf + "/infiniband/mlx5_2"
	if exists(rdma) != stays {
		t.Errorf("the RDMA device is on the host: %t", !stays)
	}
	r.end()
	if !exists(rdma) {
		t.Error("the RDMA device is not back")
	}
}

// captured unpacks a captured host's /sys, and creates dummies instead of its interfaces.
func captured(t *testing.T, name string, interfaces ...string) (dir string) {
	t.Helper()
	h, err := capturefile.Load("hosts/" + name + ".txtar")
	must(t, err)
	dir = t.TempDir()
	must(t, undertest.Unpack(h, dir))
	t.Setenv("STANDIN_SYS", dir)
	for _, i := range interfaces {
		run(t, "ip", "link", "add", i, "type", "dummy")
		t.Cleanup(func() { run(t, "ip", "link", "del", i) })
	}
	return dir
}

// virtLauncher is the annotation of the pod that virt-controller creates for the example's VM. test/kubevirt compares
// it with KubeVirt's code.
//
//go:embed testdata/virt-launcher.json
var virtLauncher string

// KubeVirt itself does not run here. A VF of the real igb on vfio-pci is attached as the interface that
// virt-controller names. standin replaces sriov-cni, and sets the VLAN with the real PF. The agent's file contains
// the data for KubeVirt, whose own code reads it in test/kubevirt.
func TestExampleKubeVirtAttachesVFIOFunction(t *testing.T) {
	needs(t, "igb")
	const vf = "0000:01:10.6"
	var networks []struct{ Name, Interface string }
	if err := json.Unmarshal([]byte(virtLauncher), &networks); err != nil || len(networks) != 1 {
		t.Fatal(networks, err)
	}
	ifName := networks[0].Interface
	r := example{
		name: "kubevirt", ifName: ifName, deviceID: vf, pool: poolPCI(vf), settings: `{"injectDeviceNodes": true, "allowedDevices": ["0000:01:00.0"]}`,
		info: pciInfo(vf, "0000:01:00.0"), nodes: []string{"/dev/vfio/vfio", group(t, vf)},
		firstDel: "failed to get netlink device with name " + ifName + ": Link not found", left: []string{"pci/" + vf},
	}.begin(t)
	if now := portrait(t, vf, "enp1s0", 3); !strings.Contains(now, "vlan 100") {
		t.Errorf("the VF has not its VLAN: %s", now)
	}
	same(t, "network-info.json", sorted(t, read(t, filepath.Join(r.adjustment.Mounts[0].Source, "network-info.json"))),
		sorted(t, fmt.Sprintf(`{"interfaces": [{"network": %q, "deviceInfo": %s, "interface": %q}]}`, networks[0].Name, r.example.info, ifName)))
	r.end()
	if now := portrait(t, vf, "enp1s0", 3); strings.Contains(now, "vlan") {
		t.Errorf("the VF still has a VLAN: %s", now)
	}
}
