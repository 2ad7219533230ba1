//go:build vm

package vm_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimespec "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A vfState is what a VF is like on the host; the interface is "" while it is elsewhere.
type vfState struct {
	Driver, IfName, MAC, MTU string
	Up                       bool
	ByPF                     vfSettings
}

// vfSettings are what a PF has set for its VF.
type vfSettings struct {
	MAC                string
	VLAN, QoS          int
	SpoofCheck         bool
	Trust              uint32
	LeastRate, MaxRate uint32
}

func stateOf(t *testing.T, address string) (s vfState) {
	t.Helper()
	dir := "/sys/bus/pci/devices/" + address
	driver, _ := filepath.EvalSymlinks(dir + "/driver")
	s.Driver = filepath.Base(driver)
	nets, _ := filepath.Glob(dir + "/net/*")
	more, _ := filepath.Glob(dir + "/virtio*/net/*")
	for _, net := range append(nets, more...) {
		s.IfName, s.MAC, s.MTU = filepath.Base(net), read(t, net+"/address"), read(t, net+"/mtu")
		var flags int
		fmt.Sscanf(read(t, net+"/flags"), "0x%x", &flags)
		s.Up = flags&1 != 0
	}
	pfs, _ := filepath.Glob(dir + "/physfn/net/*")
	if len(pfs) == 0 { // virtio has nothing to set
		return s
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE) // netlink.LinkByName does not ask for VFs
	ok(t, "netlink", err)
	defer h.Close()
	pf, err := h.LinkByName(filepath.Base(pfs[0]))
	ok(t, "PF", err)
	for _, vf := range pf.Attrs().Vfs {
		if link, _ := filepath.EvalSymlinks(fmt.Sprintf("%s/physfn/virtfn%d", dir, vf.ID)); filepath.Base(link) == address {
			s.ByPF = vfSettings{vf.Mac.String(), vf.Vlan, vf.Qos, vf.Spoofchk, vf.Trust, vf.MinTxRate, vf.MaxTxRate}
		}
	}
	return s
}

// backAs wants a VF to be what it was, which its plugin or the agent may bring about only
// a while after DEL.
func backAs(t *testing.T, address string, was vfState) {
	t.Helper()
	var now vfState
	for end := time.Now().Add(patient); time.Now().Before(end); pause() {
		if now = stateOf(t, address); now == was {
			return
		}
	}
	t.Errorf("the VF %s is back as\n%+v\nand was\n%+v", address, now, was)
}

// metadataOf are the attributes of the one device in the metadata file of a container, in
// each version of the format that the file holds.
func metadataOf(t *testing.T, spec *runtimespec.Spec, claim string) map[string]map[string]resourceapi.DeviceAttribute {
	t.Helper()
	file := mounted(t, spec, "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/"+claim+"/nic/"+driverName+"-metadata.json")
	all := map[string]map[string]resourceapi.DeviceAttribute{}
	for stream := json.NewDecoder(strings.NewReader(file)); ; {
		var m struct {
			APIVersion string
			Requests   []struct {
				Devices []struct {
					Name       string
					Attributes map[string]resourceapi.DeviceAttribute
				}
			}
		}
		err := stream.Decode(&m)
		if err == io.EOF {
			return all
		}
		ok(t, "metadata", err)
		if len(m.Requests) != 1 || len(m.Requests[0].Devices) != 1 {
			t.Fatalf("metadata: %s", file)
		}
		all[m.APIVersion] = m.Requests[0].Devices[0].Attributes
	}
}

// described wants the container to be told all of its device: the device-info file, the
// nodes, and the metadata, with what is published of the device. A driver that it is bound
// to for the pod goes before that, and leaves it no interface.
func (p *draPod) described(spec *runtimespec.Spec, info, paths, driver string) {
	p.t.Helper()
	same(p.t, "device-info file", indent(p.t, mounted(p.t, spec, environment(spec, "DEVINFO_NET1"))), indent(p.t, info))
	same(p.t, "device nodes", nodes(spec), paths)
	claim, err := p.ResourceV1().ResourceClaims(podNamespace).Get(p.t.Context(), p.name, metav1.GetOptions{})
	ok(p.t, "claim", err)
	want := map[string]string{}
	for name, a := range p.published(claim.Status.Allocation.Devices.Results[0].Device).Attributes {
		want[string(name)] = value(a)
	}
	if driver != "" {
		want["devinfo-cni.io/driver"] = driver
		delete(want, "devinfo-cni.io/ifName")
	}
	all := metadataOf(p.t, spec, p.name)
	for _, version := range []string{"metadata.resource.k8s.io/v1alpha1", "metadata.resource.k8s.io/v1beta1"} {
		got := map[string]string{}
		for name, a := range all[version] {
			if _, published := want[name]; published || name == "devinfo-cni.io/ifName" {
				got[name] = value(a)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			p.t.Errorf("%s: %s", version, diff)
		}
	}
}

// reported waits until the API server has the status of the claim.
func (p *draPod) reported() (d resourceapi.AllocatedDeviceStatus) {
	p.t.Helper()
	p.eventually("the claim has a status", patient, func() bool {
		claim, err := p.ResourceV1().ResourceClaims(podNamespace).Get(p.t.Context(), p.name, metav1.GetOptions{})
		ok(p.t, "claim", err)
		if len(claim.Status.Devices) == 1 {
			d = claim.Status.Devices[0]
		}
		return len(claim.Status.Devices) == 1
	})
	return d
}

// unlike has the PF set for its VF all that igb can, unlikeSet: of rates it knows the most alone.
const unlike = `{"type": "sriov", "vlan": 7, "vlanQoS": 3, "mac": "02:00:00:00:00:77", "spoofchk": "off", "trust": "on", "min_tx_rate": 0, "max_tx_rate": 100}`

var unlikeSet = vfSettings{MAC: "02:00:00:00:00:77", VLAN: 7, QoS: 3, Trust: 1, MaxRate: 100}

// A VF by claim, from Prepare to Unprepare. In between the pod changes what it can.
func TestDRAVFByClaim(t *testing.T) {
	needs(t, "igb", "vpvdpa")
	n := newDRANode(t, draRules)
	n.eventually("the machine's devices are offered", patient, func() bool { d, _ := n.offered(); return names(d) == machineDevices })
	began := time.Now()
	for _, test := range []struct{ name, device, address, plugins, info string }{
		{"sriov", "pci-0000-01-10-0", "0000:01:10.0", unlike, pciInfo("0000:01:10.0", "0000:01:00.0")},
		{"sriov-devinfo", "pci-0000-01-10-2", "0000:01:10.2", `{"type": "sriov"}, ` + devinfoLast, pciInfo("0000:01:10.2", "0000:01:00.0")},
		{"host-device", "pci-0000-01-10-4", "0000:01:10.4", `{"type": "host-device"}, ` + devinfoLast, pciInfo("0000:01:10.4", "0000:01:00.0")},
		{"host-device-virtio", "pci-0000-02-00-2", "0000:02:00.2", `{"type": "host-device"}`, pciInfo("0000:02:00.2", "0000:02:00.0")},
	} {
		t.Run(test.name, func(t *testing.T) {
			was := stateOf(t, test.address)
			podsMAC := was.MAC
			if test.plugins == unlike {
				podsMAC = unlikeSet.MAC
			}
			p := n.in(t).podWith(test.name, test.device, draNetwork(test.plugins))
			p.prepare()
			if _, err := p.tryContainer(); err == nil || !strings.Contains(err.Error(), "unresolvable") {
				t.Errorf("a container before its network: %v", err)
			}
			p.up()
			if !inPod(p.sandbox.Id, "net1") || stateOf(t, test.address).IfName != "" {
				t.Error("the VF is not in the pod")
			}
			if set := stateOf(t, test.address).ByPF; test.plugins == unlike && set != unlikeSet {
				t.Errorf("its PF has set %+v", set)
			}
			p.described(p.container(), test.info, "", "")
			if d := p.reported(); d.NetworkData == nil || d.NetworkData.InterfaceName != "net1" || d.NetworkData.HardwareAddress != podsMAC || len(d.Conditions) != 1 || d.Conditions[0].Status != "True" {
				t.Errorf("status: %+v", d)
			}
			spoil(t, p.sandbox.Id)
			p.stop()
			backAs(t, test.address, was)
			p.remove()
			p.unprepare()
		})
	}
	for _, w := range n.since(began) {
		t.Errorf("pods have come and gone, and slice %s was rewritten", w.slice.Name)
	}
}

// spoil changes what a pod can change of its VF, and wants it to be changed.
func spoil(t *testing.T, pod string) {
	t.Helper()
	for _, command := range []string{"down", "address 02:00:00:00:00:66", "mtu 1400", "up"} {
		run(t, append(strings.Fields("ip -n "+pod+" link set net1"), strings.Fields(command)...)...)
	}
	out, err := exec.Command("ip", "-n", pod, "link", "show", "net1").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "02:00:00:00:00:66") || !strings.Contains(string(out), "mtu 1400") {
		t.Fatalf("the pod could not change its VF: %s", out)
	}
}

// The pod's network namespace dies first: after a crash, and always with CRI-O. The kernel
// brings the VF back as the pod has left it.
func TestDRAVFWhoseNamespaceDied(t *testing.T) {
	needs(t, "igb")
	t.Cleanup(func() { vfsBack(t) })
	n := newDRANode(t, draRules)
	for _, test := range []struct{ name, plugins string }{
		{"host-device", `{"type": "host-device"}`}, {"sriov", unlike},
	} {
		t.Run(test.name, func(t *testing.T) {
			was := stateOf(t, "0000:41:10.0")
			p := n.in(t).podWith("died-"+test.name, vf41, draNetwork(test.plugins))
			p.begin()
			if test.plugins != unlike { // and so no plugin takes it back
				run(t, strings.Fields("ip link set enp65s0 vf 0 mac 02:00:00:00:00:77 vlan 7 qos 3 spoofchk off trust on max_tx_rate 100")...)
			}
			if set := stateOf(t, "0000:41:10.0").ByPF; set != unlikeSet {
				t.Errorf("its PF has set %+v", set)
			}
			spoil(t, p.sandbox.Id)
			p.dropNetns()
			p.end()
			backAs(t, "0000:41:10.0", was)
			n.published(vf41)
		})
	}
}
