//go:build vm

package vm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// node returns the device node of a device on vhost_vdpa. The kernel numbers them in the order of binding.
func node(t *testing.T, vdpa string) string {
	t.Helper()
	nodes, _ := filepath.Glob("/sys/bus/vdpa/devices/" + vdpa + "/vhost-vdpa-*")
	if len(nodes) != 1 {
		t.Fatalf("%s: vhost nodes %s", vdpa, nodes)
	}
	path := "/dev/" + filepath.Base(nodes[0])
	if stat, err := os.Stat(path); err != nil || stat.Mode()&os.ModeCharDevice == 0 {
		t.Fatalf("%s: %v", path, err)
	}
	return path
}

// virtio returns the virtioN below an interface of the machine.
func virtio(t *testing.T, name string) string {
	t.Helper()
	target, err := os.Readlink("/sys/class/net/" + name + "/device")
	must(t, err)
	return "/sys/bus/virtio/devices/" + filepath.Base(target)
}

func vdpaInfo(name, driver, path string) string {
	return fmt.Sprintf(`{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": %q, "driver": %q, "path": %q}}`, name, driver, path)
}

func vpvdpaInfo(driver, path string) string {
	return fmt.Sprintf(`{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vpvdpa0", "driver": %q, "path": %q, "pci-address": "0000:02:00.1", "pf-pci-address": "0000:02:00.0"}}`, driver, path)
}

// standalone returns the result of devinfo without another plugin, for net1 of pod1.
func standalone(pciID string) string {
	return `{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "/run/netns/pod1"` + pciIDKey(pciID) + `}]}`
}

// pciIDKey returns the last key of an interface in a result; "" if the device has no PCI function.
func pciIDKey(pciID string) string {
	if pciID == "" {
		return ""
	}
	return `, "pciID": "` + pciID + `"`
}

// vpvdpaNIC waits for the interface that virtio_vdpa creates for vpvdpa0. Its virtioN is directly below the VF, like
// the vDPA device.
func vpvdpaNIC(t *testing.T) string {
	t.Helper()
	var nets []string
	eventually(t, "vpvdpa0 has an interface", func() bool {
		for _, dir := range []string{"", "vpvdpa0/"} {
			if nets, _ = filepath.Glob("/sys/bus/pci/devices/0000:02:00.1/" + dir + "virtio*/net/*"); len(nets) == 1 {
				return true
			}
		}
		return false
	})
	return filepath.Base(nets[0])
}

// The NIC that virtio_vdpa creates for vpvdpa0 is moved into the pod. It is the same device under both of its names.
func TestInterfaceOfVDPAIsItsVDPADevice(t *testing.T) {
	needs(t, "vpvdpa")
	t.Cleanup(func() { drive(t, "vhost_vdpa") })
	drive(t, "virtio_vdpa")
	nic := vpvdpaNIC(t)
	path := virtio(t, nic)
	for _, id := range []string{"", "vpvdpa0", "0000:02:00.1"} {
		t.Run(id, func(t *testing.T) {
			n := newNetwork(t, "vdpa", `[{"type": "host-device", "device": "`+nic+`"}, `+devinfoLast+`]`)
			a := n.attachment("pod1", "net1", id)
			a.passes(moved(t, nic, "0000:02:00.1"), vpvdpaInfo("virtio", path))
		})
	}
}

const unbound = `the vDPA device vpvdpa0 cannot be described: it has no driver; bind one: echo vpvdpa0 > /sys/bus/vdpa/drivers/vhost_vdpa/bind`

// The file keeps the earlier driver, and CHECK warns.
func TestVDPAUnboundAfterADDIsAWarning(t *testing.T) {
	needs(t, "vpvdpa")
	t.Cleanup(func() { drive(t, "vhost_vdpa") })
	a := newNetwork(t, "vdpa", `[`+devinfoLast+`]`).attachment("pod1", "net1", "vpvdpa0")
	a.add(standalone("0000:02:00.1"))
	want := vpvdpaInfo("vhost", node(t, "vpvdpa0"))
	drive(t, "")
	a.check()
	same(t, "warning", a.warnings(), `level=WARN msg="`+unbound+`" attachment=vdpa/pod1/net1`)
	a.file(want)
	a.del()
}

// A VF on vp-vdpa without a vDPA device is an ordinary PCI function.
func TestVFWithoutVDPADeviceIsPCIDevice(t *testing.T) {
	needs(t, "vpvdpa")
	run(t, "vdpa", "dev", "del", "vpvdpa0")
	t.Cleanup(func() {
		run(t, "vdpa", "dev", "add", "name", "vpvdpa0", "mgmtdev", "pci/0000:02:00.1")
		drive(t, "vhost_vdpa")
	})
	a := newNetwork(t, "vdpa", `[`+devinfoLast+`]`).attachment("pod1", "net1", "0000:02:00.1")
	a.passes(standalone("0000:02:00.1"), pciInfo("0000:02:00.1", "0000:02:00.0"))
}

// The device of the macvlan is the vDPA device of the NIC below it.
func TestMacvlanHasDeviceOfVDPABelow(t *testing.T) {
	needs(t, "vdpasim")
	a := newNetwork(t, "vdpa", `[{"type": "macvlan", "master": "envdpa1"}, `+devinfoBlind+`]`).attachment("pod1", "net1", "")
	a.passes(`{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "mac": "MAC", "sandbox": "/run/netns/pod1"}]}`, vdpaInfo("vdpa1", "virtio", virtio(t, "envdpa1")))
}
