package discovery_test

import (
	"errors"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/link"
)

func TestInterfaceInThePodNamesTheDevice(t *testing.T) {
	for host, links := range map[string]map[string]string{
		"mlx5-switchdev": {"net1": `
			pci.pci-address 0000:03:00.3 < interface net1 (netlink)
			pci.pf-pci-address 0000:03:00.0 < /sys/bus/pci/devices/0000:03:00.3/physfn
			pci.rdma-device mlx5_3 < /sys/bus/pci/devices/0000:03:00.3/infiniband
			pci.representor-device eth5 < devlink ports of pci/0000:03:00.0
			in netns`},
		"i40e": {"net2": `
			pci.pci-address 0000:18:02.1 < interface net2 (netlink)
			pci.pf-pci-address 0000:18:00.0 < /sys/bus/pci/devices/0000:18:02.1/physfn
			in netns`, "eth0": "in netns"},
		"virtio-vm": {"net1": `
			pci.pci-address 0000:00:06.0 < interface net1 (netlink)
			pci.rdma-device mlx5_0 < /sys/bus/pci/devices/0000:00:06.0/infiniband
			in netns`, "net2": `
			pci.pci-address 0000:00:04.0 < interface net2 (netlink)
			in netns`},
		"vmd": {"net1": `
			pci.pci-address 10000:e1:00.1 < interface net1 (netlink)
			pci.pf-pci-address 10000:e1:00.0 < /sys/bus/pci/devices/10000:e1:00.1/physfn
			in netns`},
	} {
		for name, want := range links {
			t.Run(host+"/"+name, func(t *testing.T) {
				find(t, on(t, load(t, host)), inPod(name), want)
			})
		}
	}
}

func TestNoInterfaceIsNoProblem(t *testing.T) {
	find(t, on(t, load(t, "i40e")), inPod("net7"), "")
	target := inPod("net7")
	target.DeviceIDs = ids("deviceID", "0000:18:02.2")
	find(t, on(t, load(t, "i40e")), target, `
		pci.pci-address 0000:18:02.2 < deviceID
		pci.pf-pci-address 0000:18:00.0 < /sys/bus/pci/devices/0000:18:02.2/physfn`)
}

func TestNoNamespaceIsAnError(t *testing.T) {
	target := byID("0000:01:10.0")
	target.Netns, target.IfName = "/run/netns/gone", "net1"
	if _, err := on(t, load(t, "igb-sriov")).Find(target); !errors.Is(err, link.ErrNoNetns) {
		t.Errorf("error %v", err)
	}
}

func TestLowerInterfaceIsTheDeviceUnlessSwitchedOff(t *testing.T) {
	for _, test := range []struct{ host, name, on string }{
		{"mlx5-legacy", "net2", `
			pci.pci-address 0000:3b:00.0 < interface ens1f0np0 (netlink)
			pci.rdma-device mlx5_0 < /sys/bus/pci/devices/0000:3b:00.0/infiniband
			in netns
			shared`},
		{"i40e", "net1", `
			pci.pci-address 0000:18:00.0 < interface eno1 (netlink)
			in netns
			shared`},
	} {
		f, target := on(t, load(t, test.host)), inPod(test.name)
		find(t, f, target, test.on)
		target.FollowLower = false
		find(t, f, target, "in netns")
	}
}

func TestOwnDeviceIsNotShared(t *testing.T) {
	target := inPod("net1")
	target.FollowLower = false
	find(t, on(t, load(t, "vmd")), target, `
		pci.pci-address 10000:e1:00.1 < interface net1 (netlink)
		pci.pf-pci-address 10000:e1:00.0 < /sys/bus/pci/devices/10000:e1:00.1/physfn
		in netns`)
}

func TestLowerInterfacesAreFollowedDownToADevice(t *testing.T) {
	h := load(t, "igb-sriov")
	f := on(t, h)
	card := link.Interface{Name: "eth0", Bus: "pci", Parent: "0000:01:00.0"}
	vlan := link.Interface{Name: "eth0.5", Kind: "vlan", Lower: &card}
	odd := link.Interface{Name: "usb0", Bus: "usb", Parent: "1-1:1.0", Lower: &vlan}
	f.Interfaces = interfaces{
		"net1": {Name: "net1", Kind: "macvlan", Lower: &vlan},
		"net2": {Name: "net2", Kind: "macvlan", Lower: &odd}, // a bus that the specification has no type for
		"net3": {Name: "net3", Kind: "ipvlan"},               // the kernel does not tell
	}
	for name, want := range map[string]string{
		"net1": "pci.pci-address 0000:01:00.0 < interface eth0 (netlink)\nin netns\nshared",
		"net2": "pci.pci-address 0000:01:00.0 < interface eth0 (netlink)\nin netns\nshared",
		"net3": "in netns",
	} {
		find(t, f, inPod(name), want)
	}
}

func TestParentOfAnotherBusIsNoDevice(t *testing.T) {
	find(t, onHostNetwork(t, load(t, "netdevsim-switchdev")), inPod("eth0"), "in netns")
	find(t, onHostNetwork(t, load(t, "rxe-rdma")), inPod("rdum0"), "in netns")
}

func TestBusInfoIsAskedWhereNetlinkHasNoParent(t *testing.T) {
	for _, test := range []struct{ host, name, want string }{
		{"mlx5-legacy", "ens1f0v0", `
			pci.pci-address 0000:3b:00.2 < interface ens1f0v0 (ethtool bus-info)
			pci.pf-pci-address 0000:3b:00.0 < /sys/bus/pci/devices/0000:3b:00.2/physfn
			pci.rdma-device mlx5_2 < /sys/bus/pci/devices/0000:3b:00.2/infiniband
			in netns`},
		{"virtio-vm", "eth0", `
			pci.pci-address 0000:00:03.0 < interface eth0 (ethtool bus-info)
			in netns`},
		{"vdpa-sim", "eth1", `
			vdpa.parent-device vdpa1 < interface eth1 (ethtool bus-info)
			vdpa.driver virtio < /sys/bus/vdpa/devices/vdpa1/driver
			vdpa.path /sys/bus/virtio/devices/virtio4 < /sys/bus/virtio/devices/virtio4
			in netns`},
		{"mlx5-switchdev", "enp3s0f0s88", `
			in netns
			undescribable: the auxiliary device mlx5_core.sf.4 cannot be described: the specification has no type for a sub-function, and its parent's PCI address would hand the whole parent to a VM; "subfunctionParent": true writes it all the same`},
		{"netdevsim-switchdev", "eth0", "in netns"}, // says "netdevsim1"
		{"rxe-rdma", "rdum0", "in netns"},           // says ""
	} {
		t.Run(test.host, func(t *testing.T) {
			find(t, onHostNetwork(t, before514(t, test.host)), inPod(test.name), test.want)
		})
	}
	f := on(t, load(t, "i40e"))
	f.Interfaces = interfaces{"net1": {Name: "net1", BusInfo: "N/A"}, "net2": {Name: "net2", BusInfo: "tap"}}
	find(t, f, inPod("net1"), "in netns")
	find(t, f, inPod("net2"), "in netns")
}

// The pod's own device is the one that its interface is; not one that lies below its
// interface, nor one that another source names beside it.
func TestTheInterfacesDeviceIsItsOwn(t *testing.T) {
	for _, test := range []struct {
		host, name, id string
		own            bool
		sf             string
	}{
		{"mlx5-legacy", "net1", "", true, ""},
		{"mlx5-legacy", "net1", "0000:3b:00.3", true, ""},
		{"mlx5-legacy", "eth0", "0000:3b:00.3", false, ""}, // a veth
		{"mlx5-legacy", "net2", "", false, ""},             // a macvlan
		{"mlx5-legacy", "net7", "0000:3b:00.4", false, ""}, // no interface at all
		{"virtio-vm", "net2", "", true, ""},
		{"mlx5-switchdev", "sf", "", true, "mlx5_core.sf.7"},
		{"mlx5-vdpa", "vf", "", false, ""},                  // it carries a vDPA device
		{"mlx5-vdpa", "vf", "vdpa:0000:65:00.3", false, ""}, // which may be somebody else's
		{"mlx5-vdpa", "gone", "", false, ""},
		{"mlx5-switchdev", "uplink", "", true, ""},
		{"mlx5-switchdev", "representor", "", false, ""}, // netlink names the PF
		{"mlx5-switchdev", "old representor", "", false, ""},
		{"mlx5-switchdev", "external representor", "", false, ""},
		{"mlx5-switchdev", "ipoib child", "", false, ""}, // ethtool names the PF
		{"mlx5-switchdev", "ipoib", "", true, ""},
	} {
		f := on(t, load(t, test.host))
		if test.host == "mlx5-switchdev" || test.host == "mlx5-vdpa" {
			f.Interfaces = interfaces{
				"sf":   {Name: "sf", Bus: "auxiliary", Parent: "mlx5_core.sf.7"},
				"vf":   {Name: "vf", Bus: "pci", Parent: "0000:65:00.3"},
				"gone": {Name: "gone", Bus: "pci", Parent: "0000:ff:00.0"},

				"uplink":               {Name: "uplink", Bus: "pci", Parent: "0000:03:00.0", PortName: "p0"},
				"representor":          {Name: "representor", Bus: "pci", Parent: "0000:03:00.0", PortName: "pf0vf2"},
				"old representor":      {Name: "old representor", Bus: "pci", Parent: "0000:03:00.0", PortName: "2"},
				"external representor": {Name: "external representor", Bus: "pci", Parent: "0000:03:00.0", PortName: "c1pf0vf2"},
				"ipoib child":          {Name: "ipoib child", Kind: "ipoib", Child: true, BusInfo: "0000:03:00.0"},
				"ipoib":                {Name: "ipoib", Kind: "ipoib", Bus: "pci", Parent: "0000:03:00.3"},
			}
		}
		target := inPod(test.name)
		target.SubfunctionParent = true
		if test.id != "" {
			target.DeviceIDs = ids("deviceID", test.id)
		}
		device, err := f.Find(target)
		if err != nil {
			t.Errorf("%+v: %v", test, err)
		} else if device.IsInterface && device.Shared {
			t.Errorf("%+v: shared and own", test)
		} else if device.IsInterface != test.own || device.SF != test.sf {
			t.Errorf("%+v: got %v, %q", test, device.IsInterface, device.SF)
		}
	}
}

// twoPorts is a function with two ports, as mlx4 has it: one of them, or both, can be
// in a pod, where /sys does not show them.
const twoPorts = `made up
-- sys/bus/pci/devices/0000:05:00.0 -> ../../../devices/pci0000:00/0000:05:00.0 --
-- sys/devices/pci0000:00/0000:05:00.0/infiniband/mlx4_0/ --
-- sys/devices/pci0000:00/0000:05:00.0/net/ens5/ifindex --
4
-- sys/devices/pci0000:00/0000:05:00.0/net/ens5/dev_port --
0
-- sys/devices/pci0000:00/0000:05:00.0/net/ens5d1/ifindex --
5
-- sys/devices/pci0000:00/0000:05:00.0/net/ens5d1/dev_port --
1
`

func TestInterfaceThatOnlySharesTheFunction(t *testing.T) {
	for name, test := range map[string]struct {
		without string // what is in the pod is not in /sys
		link    link.Interface
		shared  bool
	}{
		"port":              {"ens5", link.Interface{Index: 4, Bus: "pci", Parent: "0000:05:00.0"}, true},
		"second port":       {"ens5d1", link.Interface{Index: 5, Bus: "pci", Parent: "0000:05:00.0"}, true},
		"port in our sight": {"", link.Interface{Name: "ens5", Index: 4, Bus: "pci", Parent: "0000:05:00.0"}, true},
		"before Linux 5.14": {"ens5", link.Interface{Index: 4, BusInfo: "0000:05:00.0"}, true},
		"only port":         {"ens5", link.Interface{Index: 4, Bus: "pci", Parent: "0000:05:00.0"}, false},
		"same port":         {"", link.Interface{Name: "ens5", Index: 4, Bus: "pci", Parent: "0000:05:00.0"}, false},

		"uplink":               {"ens5", link.Interface{Bus: "pci", Parent: "0000:05:00.0", PortName: "p0"}, false},
		"representor":          {"ens5", link.Interface{Bus: "pci", Parent: "0000:05:00.0", PortName: "pf0vf2"}, true},
		"representor of an SF": {"ens5", link.Interface{Bus: "pci", Parent: "0000:05:00.0", PortName: "pf0sf88"}, true},
		"representor of sfc":   {"ens5", link.Interface{Bus: "pci", Parent: "0000:05:00.0", PortName: "p0pf0vf2"}, true},
		"IPoIB":                {"ens5", link.Interface{Kind: "ipoib", Bus: "pci", Parent: "0000:05:00.0"}, false},
		"IPoIB before 5.13":    {"ens5", link.Interface{BusInfo: "0000:05:00.0"}, false},
		"IPoIB child":          {"ens5", link.Interface{Kind: "ipoib", Child: true, Bus: "pci", Parent: "0000:05:00.0"}, true},
		"its bus-info":         {"ens5", link.Interface{Kind: "ipoib", Child: true, BusInfo: "0000:05:00.0"}, true},
		"its parent's index":   {"ens5", link.Interface{Kind: "ipoib", BusInfo: "0000:05:00.0"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			text := twoPorts
			if !test.shared || test.link.PortName != "" || test.link.Kind != "" {
				text, _, _ = strings.Cut(text, "-- sys/devices/pci0000:00/0000:05:00.0/net/ens5d1/") // there is one port only
			}
			if test.without != "" {
				text = strings.ReplaceAll(text, "/net/"+test.without+"/", "/elsewhere/")
			}
			h, err := hosttxt.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
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
				find(t, f, target, want)
				target.FollowLower = false
				find(t, f, target, want)
				return
			}
			find(t, f, target, want+"\nshared")
			target.FollowLower = false
			find(t, f, target, "in netns")
		})
	}
}

// Who writes the network chooses followLower, and may name the device, but cannot make
// it the pod's own.
func TestDeviceIsSharedAlsoWhereItIsNotFollowed(t *testing.T) {
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
