package discovery_test

import (
	_ "embed"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func TestFindFollowsLowerInterfacesToDevice(t *testing.T) {
	h := load(t, "igb-sriov")
	f := on(t, h)
	card := link.Interface{Name: "eth0", Bus: "pci", Parent: "0000:01:00.0"}
	vlan := link.Interface{Name: "eth0.5", Kind: "vlan", Lower: &card}
	odd := link.Interface{Name: "usb0", Bus: "usb", Parent: "1-1:1.0", Lower: &vlan}
	f.Interfaces = interfaces{
		"net1": {Name: "net1", Kind: "macvlan", Lower: &vlan},
		"net2": {Name: "net2", Kind: "macvlan", Lower: &odd}, // the specification has no type for this bus
		"net3": {Name: "net3", Kind: "ipvlan"},               // the kernel does not report the lower interface
		"net4": {Name: "net4", BusInfo: "N/A"},
		"net5": {Name: "net5", BusInfo: "tap"},
		"net6": {Name: "net6", Bus: "pci", Parent: "0000:99:00.0"},
		"net7": {Name: "net7", Kind: "macvlan", Lower: &link.Interface{Name: "bond0.5", Kind: "vlan", Lower: &link.Interface{Name: "bond0", Kind: "bond"}}},
		"net8": {Name: "net8", Kind: "ipvlan", Lower: &link.Interface{Name: "eth1", Bus: "vmbus", Parent: "f8615163-df3e-46c5-913f-f2d2f965ed0e"}},
		"net9": {Name: "net9", Kind: "bond", BusInfo: "N/A"},
	}
	for name, want := range map[string]string{
		"net1": "pci.pci-address 0000:01:00.0 < interface eth0 (netlink)\nin netns\nshared",
		"net2": "pci.pci-address 0000:01:00.0 < interface eth0 (netlink)\nin netns\nshared",
		"net7": "in netns\nundescribable: interface net7 cannot be described: it is on bond0, which has several devices; name one device in deviceID or deviceInfo",
		"net8": "in netns\nundescribable: interface net8 cannot be described: eth1 has a device on Hyper-V's vmbus, and a VF that may come and go; name one device in deviceID or deviceInfo",
		"net3": "in netns", "net9": "in netns\nvirtual", "net4": "in netns", "net5": "in netns",
		"net6": "in netns\nmissing: interface net6 (netlink) names the PCI function 0000:99:00.0, which is not on this node",
	} {
		find(t, f, inPod(name), want)
	}
}

// What is on software has no device, whatever is in between. What is on a bond has several, and what is on something
// unknown may have one.
func TestInterfaceOnSoftwareIsVirtual(t *testing.T) {
	f := on(t, load(t, "igb-sriov"))
	for _, upper := range []string{"macvlan", "macvtap", "ipvlan", "ipvtap", "vlan"} {
		for _, between := range []string{"", "vlan", "macvlan"} {
			for lower, want := range map[string]string{
				"bridge": "\nvirtual the bridge low0", "veth": "\nvirtual the veth low0",
				"dummy": "\nvirtual the dummy low0", "openvswitch": "\nvirtual the openvswitch low0",
				"vlan": "", "": "", "none": "",
				"bond": "\nundescribable: interface net1 cannot be described: it is on low0, which has several devices; name one device in deviceID or deviceInfo",
				"team": "\nundescribable: interface net1 cannot be described: it is on low0, which has several devices; name one device in deviceID or deviceInfo",
			} {
				below := &link.Interface{Name: "low0", Kind: lower, BusInfo: "N/A"}
				if lower == "none" { // the kernel does not report it
					below = nil
				}
				if between != "" {
					below = &link.Interface{Name: "mid0", Kind: between, Lower: below}
				}
				f.Interfaces = interfaces{"net1": {Name: "net1", Kind: upper, Lower: below}}
				find(t, f, inPod("net1"), "in netns"+want)
			}
		}
	}
}

// The VF's vDPA device may belong to another pod.
func TestVFWithVDPADeviceIsNotInterfacesOwnDevice(t *testing.T) {
	f := on(t, load(t, "mlx5-vdpa"))
	f.Interfaces = interfaces{"net1": {Name: "net1", Bus: "pci", Parent: "0000:65:00.3"}}
	target := inPod("net1")
	for _, target.DeviceIDs = range [][]config.NamedID{nil, ids("deviceID", "vdpa:0000:65:00.3")} {
		if device, err := f.Find(target); err != nil || device.IsInterface {
			t.Error(show(t, device, err))
		}
	}
}

// twoPorts is a function with two ports, like those of mlx4. /sys does not show a port that is in a pod.
//
//go:embed testdata/two-ports.host
var twoPorts string

func TestDeviceWithSeveralPortsIsShared(t *testing.T) {
	for name, test := range map[string]struct {
		without string // port in the pod, which /sys does not show
		link    link.Interface
		shared  bool
	}{
		"port":              {"ens5", link.Interface{Index: 4, Bus: "pci", Parent: "0000:05:00.0"}, true},
		"second port":       {"ens5d1", link.Interface{Index: 5, Bus: "pci", Parent: "0000:05:00.0"}, true},
		"port in our sight": {"", link.Interface{Name: "ens5", Index: 4, Bus: "pci", Parent: "0000:05:00.0"}, true},
		"before Linux 5.14": {"ens5", link.Interface{Index: 4, BusInfo: "0000:05:00.0"}, true},
		"only port":         {"ens5", link.Interface{Index: 4, Bus: "pci", Parent: "0000:05:00.0"}, false}, // of a driver with one port
		"same port":         {"", link.Interface{Name: "ens5", Index: 4, Bus: "pci", Parent: "0000:05:00.0"}, false},

		"uplink":             {"ens5", link.Interface{Bus: "pci", Parent: "0000:05:00.0", PortName: "p0"}, false},
		"representor":        {"ens5", link.Interface{Bus: "pci", Parent: "0000:05:00.0", PortName: "pf0vf2"}, true},
		"IPoIB":              {"ens5", link.Interface{Kind: "ipoib", Bus: "pci", Parent: "0000:05:00.0"}, false},
		"IPoIB before 5.13":  {"ens5", link.Interface{BusInfo: "0000:05:00.0"}, false},
		"IPoIB child":        {"ens5", link.Interface{Kind: "ipoib", Child: true, Bus: "pci", Parent: "0000:05:00.0"}, true},
		"its bus-info":       {"ens5", link.Interface{Kind: "ipoib", Child: true, BusInfo: "0000:05:00.0"}, true},
		"its parent's index": {"ens5", link.Interface{Kind: "ipoib", BusInfo: "0000:05:00.0"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			text := twoPorts
			if !test.shared || test.link.PortName != "" || test.link.Kind != "" {
				text, _, _ = strings.Cut(text, "-- sys/devices/pci0000:00/0000:05:00.0/net/ens5d1/") // keep one port only
				text = strings.ReplaceAll(text, "mlx4_core", "mlx5_core")
			}
			if test.without != "" {
				text = strings.ReplaceAll(text, "/net/"+test.without+"/", "/elsewhere/")
			}
			h, err := capturefile.Parse([]byte(text))
			difftest.Must(t, err)
			f, target := on(t, h), inPod("net1")
			if test.link.Name == "" {
				test.link.Name = "net1"
			}
			f.Interfaces = interfaces{"net1": test.link}
			source := "netlink"
			if test.link.Parent == "" {
				source = "ethtool bus-info"
			}
			want := "pci.pci-address 0000:05:00.0 < interface " + test.link.Name + " (" + source + `)
				pci.rdma-device mlx4_0 < /sys/bus/pci/devices/0000:05:00.0/infiniband
				in netns`
			if !test.shared {
				find(t, f, target, want+"\nown")
				target.FollowLower = false
				find(t, f, target, want+"\nown")
				return
			}
			find(t, f, target, want+"\nshared")
			target.FollowLower = false
			want = "in netns"
			if !test.link.Borrows() {
				want += "\nundescribable: interface net1 cannot be described: it is one port of the PCI function 0000:05:00.0, which has several, and followLower is false; name one device in deviceID or deviceInfo"
			}
			find(t, f, target, strings.ReplaceAll(want, "interface net1 ", "interface "+target.IfName+" "))
		})
	}
}

// The author of a network may turn off followLower and name the device. The device is still shared.
func TestNamedDeviceIsSharedWithoutFollowLower(t *testing.T) {
	f := on(t, load(t, "mlx5-switchdev"))
	f.Interfaces = interfaces{
		"net1": {Name: "net1", Bus: "pci", Parent: "0000:03:00.0", PortName: "pf0vf2"},
		"net2": {Name: "net2", Kind: "macvlan", Lower: &link.Interface{Name: "p0", Bus: "pci", Parent: "0000:03:00.0", PortName: "p0"}},
	}
	for _, name := range []string{"net1", "net2"} {
		for id, shared := range map[string]bool{"0000:03:00.0": true, "0000:03:00.4": false, "mlx5_core.sf.4": false} {
			target := inPod(name)
			target.FollowLower, target.DeviceIDs = false, ids("deviceID", id)
			device, err := f.Find(target)
			if err != nil || device.Shared != shared || device.IsInterface {
				t.Errorf("%s, %s: %s", name, id, show(t, device, err))
			}
		}
	}
}

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

// EFA has an RDMA device and no interface. MANA's driver makes an interface for each port, and nothing shows how many.
func TestFunctionsOfCloudsAreDescribed(t *testing.T) {
	text, _, _ := strings.Cut(twoPorts, "-- sys/devices/pci0000:00/0000:05:00.0/net/")
	text = strings.NewReplacer("mlx4_core", "efa", "mlx4_0", "efa_0").Replace(text)
	const rdma = "\npci.rdma-device efa_0 < /sys/bus/pci/devices/0000:05:00.0/infiniband"
	h, err := capturefile.Parse([]byte(text))
	difftest.Must(t, err)
	find(t, on(t, h), byID("0000:05:00.0"), "pci.pci-address 0000:05:00.0 < deviceID"+rdma)
	h, err = capturefile.Parse([]byte(strings.ReplaceAll(text, "drivers/efa", "drivers/mana")))
	difftest.Must(t, err)
	f := on(t, h)
	f.Interfaces = interfaces{"net1": {Name: "net1", Bus: "pci", Parent: "0000:05:00.0"}}
	find(t, f, inPod("net1"), "pci.pci-address 0000:05:00.0 < interface net1 (netlink)"+rdma+"\nin netns\nmay be shared\nown")
}

// SFs of ice have no sfnum, and their interfaces are below the PCI function like its own, but without phys_port_name.
func TestSFOfICE(t *testing.T) {
	const pf = "sys/devices/pci0000:00/0000:05:00.0/"
	h, err := capturefile.Parse([]byte("made up\n-- sys/bus/pci/devices/0000:05:00.0 -> ../../../devices/pci0000:00/0000:05:00.0 --\n" +
		"-- " + pf + "driver -> ../../../bus/pci/drivers/ice --\n-- sys/bus/pci/drivers/ice/ --\n" +
		"-- " + pf + "class --\n0x020000\n-- sys/bus/auxiliary/devices/ice.sf.1 -> ../../../devices/pci0000:00/0000:05:00.0/ice.sf.1 --\n-- " + pf + "ice.sf.1/ --\n"))
	difftest.Must(t, err)
	f, own := on(t, h), link.Interface{Name: "net1", Bus: "pci", Parent: "0000:05:00.0"}
	f.Eswitches = switches{}
	f.Interfaces = interfaces{
		"net1": own, "net2": {Name: "net2", Kind: "macvlan", Lower: &own},
		"net3": {Name: "net3", Bus: "pci", Parent: "0000:05:00.0", PortName: "p0"}, "net4": {Name: "net4", Bus: "pci", Parent: "0000:05:00.0", PortName: "pf0sf1"},
	}
	const (
		parent      = "pci.pci-address 0000:05:00.0 < deviceID\n"
		number      = "warning: the auxiliary device ice.sf.1: cannot find its representor, because /sys does not show its number"
		conflict    = "conflict: deviceID names the auxiliary device ice.sf.1, but interface %s (netlink) names the PCI function 0000:05:00.0; both must name the same device"
		undescribed = "undescribable: the auxiliary device ice.sf.1 cannot be described: the specification has no type for sub-functions, and with the parent's PCI address a VM would get the whole parent; set \"subfunctionParent\": true to write it anyway"
	)
	for ifName, want := range map[string]struct{ plain, parent string }{
		"":     {"on ice.sf.1\n" + undescribed, parent + "on ice.sf.1\n" + number},
		"net1": {"in netns\non ice.sf.1\n" + undescribed, parent + "in netns\nown\non ice.sf.1\n" + number},
		"net2": {"in netns\nshared\non ice.sf.1\n" + undescribed, parent + "in netns\nshared\non ice.sf.1\n" + number},
		"net3": {strings.Replace(conflict, "%s", "net3", 1), parent + "in netns\nshared\non ice.sf.1\n" + number},
		"net4": {strings.Replace(conflict, "%s", "net4", 1), parent + "in netns\nshared\non ice.sf.1\n" + number},
	} {
		target := byID("ice.sf.1")
		if ifName != "" {
			target.Netns, target.IfName, target.FollowLower = pod, ifName, true
		}
		find(t, f, target, want.plain)
		target.SubfunctionParent = true
		find(t, f, target, want.parent)
	}
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
			difftest.Must(t, err)
			difftest.As[*discovery.UndescribableError](t, device.Problem)
			difftest.Same(t, path, device.Info, (*devinfo.Info)(nil))
		}
	}
}

func TestIdentityReturnsValueThatNamesDevice(t *testing.T) {
	difftest.Equal(t, discovery.Identity(nil), "")
	goldentest.Lines(t, "testdata/identity.txt", func(text string) []string {
		return slices.DeleteFunc([]string{discovery.Identity(info(t, text))}, func(id string) bool { return id == "" })
	})
}
