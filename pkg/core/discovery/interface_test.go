package discovery_test

import (
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func TestAmbiguousVirtioDeviceIsWarning(t *testing.T) {
	f := on(t, load(t, "mlx5-vdpa"))
	for m, more := range map[vdpaMAC]string{
		{}: "", {ok: true, mac: "02:00:00:00:00:01"}: "", {ok: true, mac: "02:65:00:00:00:10"}: "", {err: errors.New("made up")}: "warning: vdpa vdpa6: hardware address: made up",
	} {
		f.Interfaces = m
		find(t, f, byID("vdpa6"), `
			vdpa.parent-device vdpa6 < deviceID
			vdpa.driver virtio < /sys/bus/vdpa/devices/vdpa6/driver
			vdpa.representor-device eth8 < devlink ports of pci/0000:65:00.0
			on mlx5_core.sf.2
			`+more+`
			warning: /sys/bus/vdpa/devices/vdpa6: cannot tell which virtio device belongs to it (virtio8, virtio9)`)
	}
}

// vdpaMAC returns the same hardware address or error for every vDPA device.
type vdpaMAC struct {
	discovery.Interfaces
	mac string
	ok  bool
	err error
}

func (m vdpaMAC) VDPAMAC(string) (net.HardwareAddr, bool, error) {
	mac, _ := net.ParseMAC(m.mac)
	return mac, m.ok, m.err
}

func TestRepresentorErrorIsWarning(t *testing.T) {
	const facts = `
		pci.pci-address 0000:65:00.2 < deviceID
		pci.pf-pci-address 0000:65:00.0 < /sys/bus/pci/devices/0000:65:00.2/physfn`
	const rdma = "pci.rdma-device mlx5_2 < /sys/bus/pci/devices/0000:65:00.2/infiniband"
	for _, s := range []switches{{switchdev: errors.New("made up")}, {representor: errors.New("made up")}} {
		f := on(t, load(t, "mlx5-vdpa"))
		f.Eswitches = s
		find(t, f, byID("0000:65:00.2"), facts+"\n"+rdma+"\nwarning: the PCI function 0000:65:00.2: representor: made up")
	}
	f := on(t, load(t, "mlx5-vdpa"))
	f.Eswitches = switches{} // switchdev mode, but the VF has no port
	find(t, f, byID("0000:65:00.2"), facts+"\n"+rdma+"\nwarning: the PCI function 0000:65:00.2: 0000:65:00.0 is in switchdev mode, but has no representor of it in this network namespace")
}

// switches are in switchdev mode, unless reading it fails, and have no representors.
type switches struct{ switchdev, representor error }

func (s switches) Switchdev(string) (bool, error) { return s.switchdev == nil, s.switchdev }

func (s switches) Representor(string, link.Flavour, int) (name, source string, err error) {
	return "", "", s.representor
}

// The VFs of one PF share its mode and ports.
func TestCacheReadsDevlinkOncePerPF(t *testing.T) {
	modes, ports := 0, 0
	kernel := link.Eswitch{
		Sys:   load(t, "mlx5-vdpa").Sys(),
		Mode:  func(string) (string, error) { modes++; return "switchdev", nil },
		Ports: func(string) ([]link.PortRecord, error) { ports++; return nil, syscall.ENODEV },
	}
	f := on(t, load(t, "mlx5-vdpa"))
	f.Eswitches = hostdev.CacheEswitches(&link.Kernel{Eswitch: kernel})
	for _, vf := range []string{"0000:65:00.2", "0000:65:00.3", "0000:65:00.2"} {
		device, err := f.Find(byID(vf))
		difftest.Must(t, err)
		difftest.Equal(t, device.Warnings, []string(nil))
	}
	difftest.Same(t, "reads of the mode, and of the ports", []int{modes, ports}, []int{1, 1})
}

func TestIdentityReturnsValueThatNamesDevice(t *testing.T) {
	difftest.Equal(t, discovery.Identity(nil), "")
	goldentest.Lines(t, "testdata/identity.txt", func(text string) []string {
		return slices.DeleteFunc([]string{discovery.Identity(info(t, text))}, func(id string) bool { return id == "" })
	})
}
