package inventory_test

import (
	"strings"
	"testing"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/test/difftest"
)

// The PFs of the host igb-sriov, a VF of each, and rules for all devices.
const (
	pf0, pf1 = "pci-0000-01-00-0", "pci-0000-41-00-0"
	vf0, vf1 = "pci-0000-01-10-0", "pci-0000-41-10-0"

	shareAll = "devices: [{select: 'true', sharing: shared}]"
	giveAll  = "devices: [{select: 'true', sharing: exclusive}]"
)

// changed returns the host igb-sriov with other links.
func changed(t *testing.T, uplinks []string, masters map[string]string, more ...link.InterfaceRecord) inventory.Host {
	t.Helper()
	h := host(t, capturetest.Text(t, "igb-sriov"))
	h.Uplinks = uplinks
	h.Links = append(h.Links, more...)
	for n, l := range h.Links {
		h.Links[n].Master = masters[l.Name]
	}
	return h
}

func of(kind, name, lower string) link.InterfaceRecord {
	return link.InterfaceRecord{Name: name, Link: lower, Info: link.LinkInfo{Kind: kind}, MTU: 1500}
}

// A rule for many devices excludes devices that the host uses, unless the rule includes them explicitly.
func TestDevicesThatHostNeedsAreNotOffered(t *testing.T) {
	const remedy = "; to offer it anyway, list it in ifNames or pciAddresses, or set allowHostUse"
	const onDemand = "devices: [{select: 'true', sharing: exclusive, allowHostUse: true}]"
	used := changed(t, []string{"eth4"}, nil, of("vlan", "eth3.7", "eth3"))
	used.Uses = map[string]string{"eth2": "has the address 10.1.2.3/24", "eth3.7": "has a route to 10.9.0.0/16"}
	for name, test := range map[string]struct {
		host          inventory.Host
		configuration string
		device        string
		why           string // "" = it is offered
	}{
		"its uplink, exclusive": {
			changed(t, []string{"eth1"}, nil), "devices: [{ifNames: [eth1], sharing: exclusive}]", pf1, "the host needs it: eth1 has a default route",
		},
		"its uplink, shared by a rule that does not name it": {
			changed(t, []string{"eth1"}, nil), shareAll, pf1, "the host needs it: eth1 has a default route; to share it, list it in ifNames or pciAddresses",
		},
		"its uplink, shared by name":    {changed(t, []string{"eth1"}, nil), "devices: [{ifNames: [eth1], sharing: shared}]", pf1, ""},
		"its uplink, shared by address": {changed(t, []string{"eth1"}, nil), "devices: [{pciAddresses: ['0000:41:00.0'], sharing: shared}]", pf1, ""},
		"another PF":                    {changed(t, []string{"eth1"}, nil), shareAll, pf0, ""},
		"a VF of the uplink":            {changed(t, []string{"eth0"}, nil), giveAll, vf0, ""},
		"a VF that is the uplink":       {changed(t, []string{"eth2"}, nil), giveAll, vf0, "the host needs it: eth2 has a default route"},
		"the PF of a VF that is the uplink": {
			changed(t, []string{"eth2"}, nil), giveAll, pf0, "the host needs it: eth2 has a default route; " + vf0 + " is on " + pf0,
		},
		"a bond that is the uplink": {
			changed(t, []string{"bond0"}, nil, of("bond", "bond0", "")), shareAll, "net-bond0",
			"the host needs it: bond0 has a default route; to share it, list it in ifNames or pciAddresses",
		},
		"a bond, exclusive":  {changed(t, nil, nil, of("bond", "bond0", "")), giveAll, "net-bond0", "a bond cannot be exclusive"},
		"a bond":             {changed(t, nil, nil, of("bond", "bond0", "")), shareAll, "net-bond0", ""},
		"a port of a bond":   {changed(t, []string{"bond0"}, map[string]string{"eth1": "bond0"}, of("bond", "bond0", "")), giveAll, pf1, "eth1 is a port of bond0"},
		"a VF in a bond":     {changed(t, nil, map[string]string{"eth2": "bond0"}, of("bond", "bond0", "")), giveAll, vf0, "eth2 is a port of bond0"},
		"a bond in a bridge": {changed(t, []string{"br0"}, map[string]string{"bond0": "br0"}, of("bond", "bond0", ""), of("bridge", "br0", "")), shareAll, "net-bond0", "bond0 is a port of br0"},
		"the NIC below a VLAN": {
			changed(t, []string{"eth1.7"}, nil, of("vlan", "eth1.7", "eth1")), shareAll, pf1,
			"the host needs it: eth1 is below eth1.7, and eth1.7 has a default route; to share it, list it in ifNames or pciAddresses",
		},
		"a VF on the OVS that is the uplink": {
			changed(t, []string{"br-ex"}, map[string]string{"eth2": "ovs-system"}, of("openvswitch", "br-ex", ""), of("openvswitch", "ovs-system", "")),
			giveAll, vf0, "eth2 is a port of ovs-system",
		},
		"the PF of such a VF": {
			changed(t, []string{"br-ex"}, map[string]string{"eth2": "ovs-system"}, of("openvswitch", "br-ex", ""), of("openvswitch", "ovs-system", "")),
			giveAll, pf0, "the host needs it: eth2 is a port of br-ex, and br-ex has a default route; " + vf0 + " is on " + pf0,
		},
		"a function of ice with an SF": {
			host(t, capturetest.Ports("ice", 2)), giveAll, function, "it has devx-pci--0000-3a3b-3a00-2e0--p1 on it, which would lose their parent",
		},
		"an SF of ice": {host(t, capturetest.Ports("ice", 2)), giveAll, "devx-pci--0000-3a3b-3a00-2e0--p1", ""},
		"a function whose other port is the uplink": {
			ports(t, 2, "p2", ""), giveAll, function, "its other port is in use: p2 has a default route",
		},
		"a function whose other port has an address": {
			ports(t, 2, "", "p2"), giveAll, function, "the host uses it: p2 has the address 10.1.2.3/24" + remedy,
		},
		"the port of an uplink's function":    {ports(t, 2, "p1", ""), giveAll, "devx-pci--0000-3a3b-3a00-2e0--p1", ""},
		"the further port of a function":      {ports(t, 2, "", ""), giveAll, "devx-pci--0000-3a3b-3a00-2e0--p1", function + ", another port of its function, is offered"},
		"an OVS bridge":                       {changed(t, nil, nil, of("openvswitch", "br-int", "")), shareAll, "net-br-int", ""},
		"a PF with VFs":                       {changed(t, nil, nil), giveAll, pf1, "it has 2 devices on it, which would lose their parent"},
		"a VF, shared":                        {changed(t, nil, nil), shareAll, vf0, "a vf cannot be shared"},
		"what the host uses, by select":       {used, giveAll, vf0, "the host uses it: eth2 has the address 10.1.2.3/24" + remedy},
		"by PF":                               {used, "devices: [{pfNames: [eth0], sharing: exclusive}]", vf0, "the host uses it: eth2 has the address 10.1.2.3/24" + remedy},
		"by what is on it":                    {used, giveAll, "pci-0000-01-10-2", "the host uses it: eth3 is below eth3.7, and eth3.7 has a route to 10.9.0.0/16" + remedy},
		"a device that is idle":               {used, giveAll, vf1, ""},
		"by name":                             {used, "devices: [{ifNames: [eth2], sharing: exclusive}]", vf0, ""},
		"by address":                          {used, "devices: [{pciAddresses: ['0000:01:10.0'], sharing: exclusive}]", vf0, ""},
		"on demand":                           {used, onDemand, vf0, ""},
		"not on demand, with a default route": {used, onDemand, "pci-0000-01-10-4", "the host needs it: eth4 has a default route"},
		"what nobody names":                   {changed(t, nil, nil), "devices: [{drivers: [igbvf], sharing: exclusive}]", pf0, "no rule selects it"},
		"what an expression fails of": {
			changed(t, nil, nil), `devices: [{select: 'device.attributes["devinfo-cni.io"].vfIndex < 2', sharing: exclusive}]`, pf0,
			"no rule selects it; devices[0].select: no such key: vfIndex",
		},
	} {
		decisions := inventory.Decide(read(t, test.host), rules(t, test.configuration), input())
		difftest.Same(t, name, decision(t, decisions, test.device).Why, test.why)
	}
}

func TestOvsSystemIsNotADevice(t *testing.T) {
	for _, d := range read(t, changed(t, nil, nil, of("openvswitch", "ovs-system", ""))) {
		if d.IfName == "ovs-system" {
			t.Errorf("%+v", d)
		}
	}
}

func TestFirstMatchingRuleApplies(t *testing.T) {
	const configuration = `devices:
- {pfNames: [eth1], sharing: exclusive, attributes: {physicalNetwork: blue}}
- {drivers: [igbvf], select: 'device.attributes["devinfo-cni.io"].vfIndex == 0', sharing: exclusive, attributes: {physicalNetwork: red, example.com/rack: 7, fast: true}}
`
	list := pool(t, changed(t, nil, nil), configuration)
	networks := map[string]string{}
	for name, d := range inventory.PublishedIn(list) {
		networks[name] = *d.Attributes["devinfo-cni.io/physicalNetwork"].StringValue
	}
	difftest.Equal(t, networks, map[string]string{vf0: "red", vf1: "blue", "pci-0000-41-10-2": "blue"})
	d := inventory.PublishedIn(list)[vf0]
	if *d.Attributes["example.com/rack"].IntValue != 7 || !*d.Attributes["devinfo-cni.io/fast"].BoolValue {
		t.Errorf("got %s", describe(d))
	}
}

// The taint makes the scheduler wait. Devices that claims hold get no taint.
func TestDevicesWithUnknownAllocationAreTainted(t *testing.T) {
	devices := read(t, changed(t, nil, nil))
	configuration := rules(t, everything)
	s := input()
	before := inventory.PublishedIn(inventory.Slices(inventory.Decide(devices, configuration, s), nil))
	s.Unknown, s.Ours = true, inventory.Published{vf0: before[vf0]}
	now := inventory.PublishedIn(inventory.Slices(inventory.Decide(devices, configuration, s), s.Ours))
	for name, tainted := range map[string]bool{vf0: false, "pci-0000-01-10-2": true, pf0: false} {
		d, published := now[name]
		if is := len(d.Taints) == 1 && d.Taints[0].Key == inventory.TaintAllocationUnknown; is != tainted || !published {
			t.Errorf("%s: published %v, taints %v", name, published, d.Taints)
		}
	}
}

func TestPFWithoutCarrierTaintsItsDevices(t *testing.T) {
	for name, test := range map[string]struct {
		flags   []string
		tainted bool
	}{"up": {[]string{"UP"}, false}, "no carrier": {[]string{"NO-CARRIER", "UP"}, true}, "down": {nil, false}} {
		h := changed(t, nil, nil)
		for n, l := range h.Links {
			if l.Name == "eth1" {
				h.Links[n].Flags = test.flags
			}
		}
		published := inventory.PublishedIn(pool(t, h, everything))
		for _, device := range []string{pf1, vf1} {
			difftest.Same(t, name+": taint of "+device, len(published[device].Taints) > 0, test.tainted)
		}
	}
}

func TestResourceNamePublishesAttributesForMultus(t *testing.T) {
	published := inventory.PublishedIn(pool(t, host(t, capturetest.Text(t, "mlx5-vdpa")), "devices: [{select: 'true', sharing: exclusive, resourceName: example.com/vf}]"))
	ids := map[string]string{}
	for name, d := range published {
		if *d.Attributes[inventory.ResourceName].StringValue != "example.com/vf" {
			t.Errorf("%s: %s", name, describe(d))
		}
		ids[name] = *d.Attributes[inventory.DeviceID].StringValue
	}
	difftest.Equal(t, ids, map[string]string{
		"pci-0000-65-00-2": "0000:65:00.2", "vdpa-vdpa4": "0000:65:00.4", "vdpa-vdpa6": "mlx5_core.sf.2", "vdpa-vdpa7": "mlx5_core.sf.3",
		"vdpax-vdpa-3a0000-3a65-3a00-2e3": "0000:65:00.3",
	})
}

// A pod needs only the device nodes, provided that its network namespace may open them.
func TestRDMADeviceWithoutInterfaceIsOffered(t *testing.T) {
	const vf = "0000:17:00.1"
	text := string(capturetest.Text(t, "mlx5-infiniband"))
	add := func(entry string) string { return text + "-- " + entry + " --\n" }
	const dir = "sys/devices/pci0000:16/0000:16:01.0/" + vf
	for name, test := range map[string]struct{ text, why string }{
		"without ib_ipoib":                  {text, ""},
		"a kernel that knows no other mode": {strings.Replace(text, "-- sys/module/ib_core/parameters/netns_mode --\nY\n", "", 1), ""},
		"RDMA's exclusive mode": {
			strings.Replace(text, "netns_mode --\nY", "netns_mode --\nN", 1),
			"it has no interface, and only the host's network namespace can open its RDMA devices: ib_core.netns_mode=1, set at boot, opens them to pods",
		},
		"its interface is in a pod": {add(dir + "/net/"), "it has no interface in the host network namespace; it is probably in another one"},
		"its RDMA device, too":      {strings.ReplaceAll(text, dir+"/infiniband/", dir+"/infinite/"), "it has no interface in the host network namespace; it is probably in another one"},
		"with a vDPA device": {
			add("sys/bus/vdpa/devices/vdpa0 -> ../../../devices/pci0000:16/0000:16:01.0/" + vf + "/vdpa0"),
			"it has no interface here, but vdpa-vdpa0 on it",
		},
	} {
		got := decision(t, inventory.Decide(read(t, host(t, []byte(test.text))), rules(t, giveAll), input()), "pci-0000-17-00-1")
		difftest.Same(t, name, got.Why, test.why)
	}
}

// Whoever has a function on a driver of uio can write to all memory, and no container gets /dev/uioN.
func TestFunctionsOnUIOAreNotOffered(t *testing.T) {
	const remedy = ", whose users can write to all memory, so no container gets /dev/uioN: bind it to vfio-pci"
	for driver, why := range map[string]string{
		"vfio-pci": "", "mlx5_vfio_pci": "",
		"igb_uio": "it is on igb_uio" + remedy, "uio_pci_generic": "it is on uio_pci_generic" + remedy,
	} {
		devices := read(t, changed(t, nil, nil))
		for n := range devices {
			if devices[n].Name == "pci-0000-01-10-6" {
				devices[n].Driver = driver
			}
		}
		if got := decision(t, inventory.Decide(devices, rules(t, giveAll), input()), "pci-0000-01-10-6"); got.Why != why {
			t.Errorf("%s: got %q, want %q", driver, got.Why, why)
		}
	}
}
