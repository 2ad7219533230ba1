//go:build vm

package vm_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/event"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
)

// patient is the time limit for slow actions.
const patient = 3 * time.Minute

// offerAll are rules for all VFs of the machine, for the vDPA device on one of them, and for a PF.
const offerAll = `devices:
- select: device.attributes["devinfo-cni.io"].kind == "vdpa" && device.attributes["devinfo-cni.io"].vdpaDriver == "vhost"
  sharing: exclusive
  resourceName: example.com/vdpa # for which the simulated one has no address
- pfNames: [enp1s0, enp65s0, enp2s0]
  sharing: exclusive
- ifNames: [enp65s0]
  sharing: shared
`

const (
	pf41      = "pci-0000-41-00-0"
	vf41, v2  = "pci-0000-41-10-0", "pci-0000-41-10-2"
	toPF41    = "/sys/bus/pci/devices/0000:41:00.0/"
	elsewhere = "pci-0000-01-10-0 pci-0000-01-10-2 pci-0000-01-10-4 pci-0000-01-10-6 pci-0000-02-00-2"
)

// offered returns the devices that cni-dra-driver would publish, by name.
func offered(t *testing.T, rules string) map[string]resourceapi.Device {
	t.Helper()
	out, err := exec.Command(plugins+"/cni-dra-driver", "inventory", "--config", rules, "-o", "json").Output()
	must(t, err)
	var all struct{ Slices []inventory.Slice }
	must(t, json.Unmarshal(out, &all))
	devices := map[string]resourceapi.Device{}
	for _, s := range all.Slices {
		for _, d := range s.Devices {
			devices[d.Name] = d
		}
	}
	return devices
}

// The driver reads the node's devices only when the kernel reports a change.
func TestOffersFollowDeviceChanges(t *testing.T) {
	needs(t, "igb", "vpvdpa")
	t.Cleanup(func() { cardBack(t) })
	rules := filepath.Join(t.TempDir(), "devices.yaml")
	write(t, rules, offerAll)
	node := devices.New(devices.Options{Inventory: &devices.Inventory{Events: event.Listen, Settle: time.Second}}, nil)
	go node.Watch(t.Context())
	node.Publish()
	follow := func(what string, holds func(map[string]resourceapi.Device) bool) {
		t.Helper()
		for limit := time.After(patient); ; {
			select {
			case <-node.Changed():
				if holds(offered(t, rules)) {
					return
				}
			case <-limit:
				text, err := json.MarshalIndent(offered(t, rules), "", " ")
				t.Fatalf("%s: still offered: %s %v", what, text, err)
			}
		}
	}
	names := func(devices map[string]resourceapi.Device) string {
		return strings.Join(slices.Sorted(maps.Keys(devices)), " ")
	}
	text := func(d resourceapi.Device, attribute string) string {
		switch a := d.Attributes[resourceapi.QualifiedName("devinfo-cni.io/"+attribute)]; {
		case a.IntValue != nil:
			return fmt.Sprint(*a.IntValue)
		case a.StringValue != nil:
			return *a.StringValue
		}
		return ""
	}
	all := strings.Join([]string{elsewhere, pf41, vf41, v2, "vdpa-vpvdpa0"}, " ")
	complete := func(d map[string]resourceapi.Device) bool {
		return names(d) == all && text(d[vf41], "ifName") == "enp65s0v0" && text(d[v2], "ifName") == "enp65s0v1" &&
			d[pf41].Taints == nil && text(d[pf41], "speed") == "1000"
	}
	follow("as the machine is", complete)
	write(t, toPF41+"sriov_numvfs", "0")
	follow("no VFs", func(d map[string]resourceapi.Device) bool {
		return names(d) == strings.Join([]string{elsewhere, pf41, "vdpa-vpvdpa0"}, " ")
	})
	write(t, toPF41+"sriov_numvfs", "2")
	follow("new VFs", func(d map[string]resourceapi.Device) bool { return names(d) == all })
	for vf, name := range map[string]string{"0000:41:10.0": "enp65s0v0", "0000:41:10.2": "enp65s0v1"} {
		run(t, "ip", "link", "set", interfaceOf(t, vf), "name", name)
	}
	follow("interfaces renamed", complete)
	monitor(t, "set_link net1 off")
	follow("carrier lost", func(d map[string]resourceapi.Device) bool {
		for _, name := range []string{pf41, vf41, v2} {
			if len(d[name].Taints) != 1 || d[name].Taints[0].Key != inventory.TaintNoCarrier || d[name].Taints[0].Effect != "NoSchedule" {
				return false
			}
		}
		return true
	})
	monitor(t, "set_link net1 on")
	follow("carrier back", complete)
	write(t, toPF41+"remove", "1")
	follow("card removed", func(d map[string]resourceapi.Device) bool { return names(d) == elsewhere+" vdpa-vpvdpa0" })
	cardBack(t)
	follow("card back", complete)
}

// cardBack restores the second igb card to the state after guest-init.
func cardBack(t *testing.T) {
	t.Helper()
	monitor(t, "set_link net1 on")
	write(t, "/sys/bus/pci/rescan", "1")
	if name := interfaceOf(t, "0000:41:00.0"); name != "enp65s0" {
		run(t, "ip", "link", "set", name, "name", "enp65s0")
	}
	run(t, "ip", "link", "set", "enp65s0", "up")
	if read(t, toPF41+"sriov_numvfs") != "2" || interfaceOf(t, "0000:41:10.0") != "enp65s0v0" || interfaceOf(t, "0000:41:10.2") != "enp65s0v1" {
		vfsBack(t)
	}
}

// interfaceOf waits for a function's interface on the host.
func interfaceOf(t *testing.T, address string) (name string) {
	t.Helper()
	eventually(t, address+" has an interface", func() bool {
		nets, _ := filepath.Glob("/sys/bus/pci/devices/" + address + "/net/*")
		if len(nets) > 0 {
			name = filepath.Base(nets[0])
		}
		return len(nets) == 1
	})
	return name
}

// monitor sends a command to QEMU's monitor.
func monitor(t *testing.T, command string) {
	t.Helper()
	ports, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
	for _, port := range ports {
		if read(t, port) == "monitor" {
			write(t, "/dev/"+filepath.Base(filepath.Dir(port)), command+"\n")
			return
		}
	}
	t.Fatal("the machine has no port to the monitor")
}

// portrait describes a VF on the host: its driver, its interface, and the settings of its PF in ip's line "vf N".
func portrait(t *testing.T, address, pf string, vf int) string {
	t.Helper()
	dir := "/sys/bus/pci/devices/" + address
	driver, _ := os.Readlink(dir + "/driver")
	text := "driver " + filepath.Base(driver)
	nets, _ := filepath.Glob(dir + "/net/*")
	more, _ := filepath.Glob(dir + "/virtio*/net/*")
	for _, net := range append(nets, more...) {
		text += fmt.Sprintf(", interface %s %s mtu %s", filepath.Base(net), read(t, net+"/address"), read(t, net+"/mtu"))
	}
	for line := range strings.Lines(run(t, "ip", "link", "show", "dev", pf)) {
		if strings.HasPrefix(strings.TrimSpace(line), fmt.Sprintf("vf %d ", vf)) {
			text += ", " + strings.TrimSpace(line)
		}
	}
	return text
}

// kept records the state of a function. It returns a function that restores it when its interface is on the host and
// checks that it has its earlier state, and one that only checks.
func kept(t *testing.T, address, ifName, pf string, vf int) (node *restore.Devices, was restore.Snapshot, undo, unchanged func()) {
	t.Helper()
	sys, err := sysfs.Open("/sys")
	must(t, err)
	node = restore.New(sys, sysfs.Writer("/sys"), settings.Kernel{Kernel: link.NewKernel(sys.Files()), Proc: "/proc"})
	was, err = node.Look(hostdev.Ref{PCI: address, IfName: ifName})
	must(t, err)
	before := portrait(t, address, pf, vf)
	unchanged = func() {
		t.Helper()
		same(t, address, portrait(t, address, pf, vf), before)
		now, err := node.Look(hostdev.Ref{PCI: address, IfName: ifName})
		must(t, err)
		if left := was.Settings.Unlike(now.Settings); left != nil {
			t.Errorf("%s: %q differ", address, left)
		}
	}
	return node, was, func() {
		t.Helper()
		eventually(t, address+" is restored", func() bool { // a driver may refuse a MAC for a while
			did, err := node.Restore(was)
			t.Log(did, err)
			return err == nil
		})
		unchanged()
	}, unchanged
}

// When a pod's network namespace ends, the kernel moves an interface back with the settings that the pod left. A VF
// on vfio-pci has no interface.
func TestVFIsRestoredAfterPod(t *testing.T) {
	needs(t, "igb", "vpvdpa")
	t.Cleanup(func() { vfsBack(t) })
	for _, test := range []struct {
		address, ifName, pf string
		vf                  int
		set                 string // settings of the PF
	}{
		{"0000:41:10.0", "enp65s0v0", "enp65s0", 0, "mac 02:00:00:00:00:77 vlan 7 qos 3 spoofchk off trust on max_tx_rate 100"},
		{"0000:02:00.2", "enp2s0v1", "enp2s0", 1, ""},
		{"0000:01:10.6", "", "enp1s0", 3, "vlan 7"},
	} {
		t.Run(test.address, func(t *testing.T) {
			_, _, undo, _ := kept(t, test.address, test.ifName, test.pf, test.vf)
			if test.set != "" {
				run(t, append(strings.Fields(fmt.Sprintf("ip link set %s vf %d", test.pf, test.vf)), strings.Fields(test.set)...)...)
			}
			if test.ifName != "" {
				run(t, "ip", "netns", "add", "spoils")
				run(t, strings.Fields("ip link set "+test.ifName+" netns spoils name net1")...)
				for _, change := range []string{"address 02:00:00:00:00:66", "mtu 1400", "promisc on", "allmulticast on", "alias spoilt", "group 7", "txqueuelen 3", "arp off", "multicast off", "mode dormant", "gso_max_size 2000", "up"} {
					run(t, strings.Fields("ip -n spoils link set net1 "+change)...)
				}
				run(t, strings.Fields("ip -n spoils link property add dev net1 altname "+test.ifName+" altname spoilt0")...)
				run(t, "ip", "netns", "del", "spoils")
			}
			undo()
		})
	}
}

// A VF is bound to vfio-pci for a pod, whose DPDK returns the PF's frames. Then it is bound to its network driver
// again.
func TestVFIsBoundToVFIOForItsPod(t *testing.T) {
	needs(t, "igb")
	t.Cleanup(func() { vfsBack(t) })
	hugepages(t)
	const address, podsMAC = "0000:41:10.0", "02:00:00:00:00:77"
	node, was, undo, _ := kept(t, address, "enp65s0v0", "enp65s0", 0)
	must(t, node.MayBind(was, "vfio-pci"))
	must(t, node.Bind(was, "vfio-pci"))
	if now := portrait(t, address, "enp65s0", 0); !strings.HasPrefix(now, "driver vfio-pci, vf") {
		t.Errorf("in the pod: %s", now)
	}
	run(t, "ip", "link", "set", "enp65s0", "vf", "0", "mac", podsMAC)
	agent := injecting(t, "0000:41:00.0")
	dpdk := newNetwork(t, "dpdk", `[`+devinfoLast+`]`).attachment("pod1", "net1", address).injected(agent).start(t, append(shown(t, "dpdk-testpmd -a"), swaps...)...)
	answers(t, "enp65s0", podsMAC)
	dpdk.End()
	undo()
}
