package discovery_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/test/difftest"
)

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

// SFs of ice have no sfnum.
func TestMissingNumberOfSFIsWarning(t *testing.T) {
	const pf = "sys/devices/pci0000:00/0000:05:00.0/"
	h, err := capturefile.Parse([]byte("made up\n-- sys/bus/pci/devices/0000:05:00.0 -> ../../../devices/pci0000:00/0000:05:00.0 --\n" +
		"-- " + pf + "class --\n0x020000\n-- sys/bus/auxiliary/devices/ice.sf.1 -> ../../../devices/pci0000:00/0000:05:00.0/ice.sf.1 --\n-- " + pf + "ice.sf.1/ --\n"))
	must(t, err)
	f, target := on(t, h), byID("ice.sf.1")
	f.Eswitches, target.SubfunctionParent = switches{}, true
	find(t, f, target, `
		pci.pci-address 0000:05:00.0 < deviceID
		on ice.sf.1
		warning: the auxiliary device ice.sf.1: cannot find its representor, because /sys does not show its number`)
}

// switches are in switchdev mode, unless reading it fails, and have no representors.
type switches struct{ switchdev, representor error }

func (s switches) Switchdev(string) (bool, error) { return s.switchdev == nil, s.switchdev }

func (s switches) Representor(string, link.Flavour, int) (string, bool, error) {
	return "", false, s.representor
}

// The VFs of one PF share its mode and ports.
func TestCacheReadsDevlinkOncePerPF(t *testing.T) {
	modes, ports := 0, 0
	kernel := link.Eswitch{
		Sys:   load(t, "mlx5-vdpa").Sys(),
		Mode:  func(string) (string, error) { modes++; return "switchdev", nil },
		Ports: func(string) ([]*netlink.DevlinkPort, error) { ports++; return nil, syscall.ENODEV },
	}
	f := on(t, load(t, "mlx5-vdpa"))
	f.Eswitches = hostdev.CacheEswitches(&link.Kernel{Eswitch: kernel})
	for _, vf := range []string{"0000:65:00.2", "0000:65:00.3", "0000:65:00.2"} {
		if device, err := f.Find(byID(vf)); err != nil || len(device.Warnings) > 0 {
			t.Error(show(t, device, err))
		}
	}
	if modes != 1 || ports != 1 {
		t.Errorf("%d reads of the mode, %d of the ports", modes, ports)
	}
}

func TestSocketPathWithMangledCharactersIsUndescribable(t *testing.T) {
	for _, path := range []string{"/run/a b", "/run/a=b", `/run/a\b`, "/run/a\nb", "run/s"} {
		for _, typ := range []string{"vhost-user", "memif"} {
			device, err := on(t, load(t, "i40e")).Find(discovery.Target{Declared: info(t, `{"type": "`+typ+`"}`), SocketPath: path})
			must(t, err)
			difftest.As[*discovery.UndescribableError](t, device.Problem)
			difftest.Same(t, path, device.Info, (*devinfo.Info)(nil))
		}
	}
}

func TestIdentityReturnsValueThatNamesDevice(t *testing.T) {
	difftest.Equal(t, discovery.Identity(nil), "")
	for text, want := range map[string]string{
		`{}`:              "",
		`{"type": "pci"}`: "",
		`{"pci": {"pci-address": "0000:01:00.0"}}`:                "",
		`{"type": "pci", "pci": {"pci-address": "0000:0A:00.0"}}`: "0000:0a:00.0",
		`{"type": "vdpa"}`: "",
		`{"type": "vdpa", "vdpa": {"pci-address": "0000:0A:00.0"}}`:                           "0000:0a:00.0",
		`{"type": "vdpa", "vdpa": {"parent-device": "Vdpa0", "pci-address": "0000:0A:00.0"}}`: "Vdpa0",
		`{"type": "vhost-user", "vhost-user": {"path": "/Run/s"}}`:                            "/Run/s",
		`{"type": "vhost-user", "memif": {"path": "/run/s"}}`:                                 "",
		`{"type": "memif", "memif": {"path": "/run/m"}}`:                                      "/run/m",
		`{"type": "memif"}`: "",
	} {
		difftest.Same(t, text, discovery.Identity(info(t, text)), want)
	}
}
