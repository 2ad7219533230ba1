//go:build vm

package link

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/rtnetlink"
	"devinfo-cni.io/test/difftest"
)

func needs(t *testing.T, setups ...string) *Kernel {
	t.Helper()
	linktest.NeedsMachine(t, setups...)
	return NewKernel(os.DirFS("/sys"))
}

func TestVMOnlyPortsOfDeviceAreReturned(t *testing.T) {
	needs(t, "nsim")
	difftest.Must(t, os.WriteFile("/sys/bus/netdevsim/new_device", []byte("7 3"), 0))
	defer os.WriteFile("/sys/bus/netdevsim/del_device", []byte("7"), 0)
	for device, want := range map[string]int{"netdevsim1": 4, "netdevsim7": 3} {
		ports, err := Handle{"netdevsim", device}.Ports()
		if err != nil || len(ports) != want {
			t.Errorf("%s: %d ports, %v; want %d", device, len(ports), err, want)
		}
		all, err := netlink.DevLinkGetAllPortList()
		if err != nil || len(all) != 7 {
			t.Fatalf("%d ports in all, %v", len(all), err)
		}
		for _, p := range ports {
			i := slices.IndexFunc(all, func(q *netlink.DevlinkPort) bool {
				return q.DeviceName == device && q.PortIndex == p.Index
			})
			if i < 0 || all[i].NetdeviceName != p.Netdev || flavours[all[i].PortFlavour] != p.Flavour || (p.Flavour == flavourVF) != (p.VFNumber != nil) {
				t.Errorf("%s: the library does not list %+v", device, p)
			}
		}
	}
	if ports, err := (Handle{"netdevsim", "nosuch"}).Ports(); !rtnetlink.Absent(err) {
		t.Errorf("a missing device: %d ports, %v: the kernel may ignore the handle", len(ports), err)
	}
}

func TestVMRepresentorComesFromPort(t *testing.T) {
	e := needs(t, "nsim").Eswitch
	e.Ports = func(string) ([]PortRecord, error) { return Handle{"netdevsim", "netdevsim1"}.Ports() }
	for number, want := range []string{"eni1npf0vf0", "eni1npf0vf1", ""} {
		got, _, err := e.Representor("0000:01:00.0", VF, number)
		if got != want || err != nil {
			t.Errorf("VF %d: %q, %v", number, got, err)
		}
	}
}

func TestVMLegacyPFHasNoRepresentor(t *testing.T) {
	k := needs(t, "igb")
	if on, err := k.Switchdev("0000:01:00.0"); on || err != nil {
		t.Errorf("Switchdev: %v, %v", on, err)
	}
	if name, _, err := k.Representor("0000:01:00.0", VF, 0); name != "" || err != nil {
		t.Errorf("Representor: %q, %v", name, err)
	}
}

func TestVMInterfacesHaveParents(t *testing.T) {
	k := needs(t, "igb", "vdpasim")
	pod := linktest.NewNetns(t)
	linktest.AddMacvlan(t, "enp1s0", "net1", pod)
	net1, err := k.Interface(pod, "net1")
	if err != nil || net1.Kind != "macvlan" || net1.Lower == nil || net1.Lower.Parent != "0000:01:00.0" || net1.Lower.Bus != "pci" {
		t.Errorf("net1: %+v, %+v, %v", net1, net1.Lower, err)
	}
	for name, want := range map[string]string{"enp1s0v0": "pci/0000:01:10.0", "envdpa1": "virtio/virtio"} {
		i, err := k.Interface("", name)
		if got := i.Bus + "/" + i.Parent; err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
	}
}

func TestVMVDPADevicesHaveMACs(t *testing.T) {
	k := needs(t, "vdpasim", "vpvdpa")
	for name, want := range map[string]string{
		"vdpa0": "02:00:00:00:0d:00", "vdpa1": "02:00:00:00:0d:01", "vpvdpa0": "52:54:00:00:02:01", "nosuch": "",
	} {
		mac, ok, err := k.VDPAMAC(name)
		if mac.String() != want || ok != (want != "") || err != nil {
			t.Errorf("%s: %v, %v, %v; want %s", name, mac, ok, err, want)
		}
	}
}
