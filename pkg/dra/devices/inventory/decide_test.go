package inventory_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/listing"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

const driver = "cni.dra.networking.x-k8s.io"

// everything is a configuration that selects all devices. Multus may attach the exclusive ones.
const everything = `devices:
- select: device.attributes["devinfo-cni.io"].kind in ["vf", "sf", "vdpa"]
  sharing: exclusive
  resourceName: example.com/vf
  attributes: {physicalNetwork: physnet1}
- select: "true"
  sharing: shared
  attachments: 100
  bandwidth: 25G
`

func rules(t testing.TB, configuration string) inventory.Rules {
	t.Helper()
	r, err := inventory.ParseRules([]byte(configuration))
	difftest.Must(t, err)
	return r
}

// host parses a capture.
func host(t testing.TB, text []byte) inventory.Host {
	t.Helper()
	file, err := capturefile.Parse(text)
	difftest.Must(t, err)
	h, err := inventory.Captured(file)
	difftest.Must(t, err)
	return h
}

func read(t testing.TB, h inventory.Host) []inventory.Device {
	t.Helper()
	devices, warnings, err := inventory.Read(h)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, warnings %q", err, warnings)
	}
	return devices
}

// input returns the input of Decide for a current API server and a node without holders.
func input() inventory.DecideInput { return inventory.DecideInput{Driver: driver, Sharing: true} }

// pool returns the published devices of a host.
func pool(t testing.TB, h inventory.Host, configuration string) []inventory.Slice {
	t.Helper()
	return inventory.Slices(inventory.Decide(read(t, h), rules(t, configuration), input()), nil)
}

// decision returns the decision about a device.
func decision(t testing.TB, all []inventory.Decision, name string) inventory.Decision {
	t.Helper()
	for _, c := range all {
		if c.Device.Name == name {
			return c
		}
	}
	t.Fatalf("there is no device %s", name)
	return inventory.Decision{}
}

// The PFs of the host igb-sriov, a VF of each, and rules for all devices.
const (
	pf0, pf1 = "pci-0000-01-00-0", "pci-0000-41-00-0"
	vf0, vf1 = "pci-0000-01-10-0", "pci-0000-41-10-0"
	nic      = "pci-0000-00-03-0" // of virtio-vm
	mlxVF    = "pci-0000-65-00-4" // of mlx5-vdpa

	shareAll = "devices: [{select: 'true', sharing: shared}]"
	giveAll  = "devices: [{select: 'true', sharing: exclusive}]"
)

// words are the abbreviations of testdata.
var words = strings.NewReplacer("PF0", pf0, "PF1", pf1, "VF0", vf0, "VF1", vf1, "FUNCTION", function, "NIC", nic, "MLXVF", mlxVF, "PORT", "devx-pci--0000-3a3b-3a00-2e0--p1",
	"GIVE", "{select: 'true', sharing: exclusive}", "SHARE", "{select: 'true', sharing: shared}",
	"USED", "uplink eth4, vlan eth3.7 on eth3, use eth2 has the address 10.1.2.3/24, use eth3.7 has a route to 10.9.0.0/16")

// changed returns the host igb-sriov, or first "host virtio-vm" or "ports 2 of ice", with changes: "lost eth1", "uplink eth1",
// "use eth2 has a route", "bond bond0", "vlan eth1.7 on eth1", "port eth1 of bond0", "without interfaces".
func changed(t testing.TB, changes string) inventory.Host {
	t.Helper()
	text := capturetest.Text(t, "igb-sriov")
	h := host(t, text)
	h.Uplinks = nil
	for _, change := range strings.Split(changes, ", ") {
		what, rest, _ := strings.Cut(change, " ")
		name, more, _ := strings.Cut(rest, " ")
		_, other, _ := strings.Cut(more, " ")
		switch what {
		case "unchanged":
		case "host":
			text = capturetest.Text(t, name)
			h = host(t, text)
			h.Uplinks = nil
		case "lost":
			h = host(t, capturetest.Without(text, name))
			h.Uplinks = nil
		case "ports":
			n, err := strconv.Atoi(name)
			difftest.Must(t, err)
			h = host(t, capturetest.Ports(other, n))
			h.Uplinks, h.Uses = []string{}, map[string]string{}
		case "without":
			h.Links = nil
		case "uplink":
			h.Uplinks = append(h.Uplinks, name)
		case "use":
			if h.Uses == nil {
				h.Uses = map[string]string{}
			}
			h.Uses[name] = more
		case "port":
			h.Links[slices.IndexFunc(h.Links, func(l listing.Interface) bool { return l.Name == name })].Master = other
		default:
			h.Links = append(h.Links, listing.Interface{Name: name, Link: other, Info: listing.Info{Kind: what}, MTU: 1500})
		}
	}
	return h
}

func TestDevicesThatHostNeedsAreNotOffered(t *testing.T) {
	goldentest.Lines(t, "testdata/decided.txt", func(line string) []string {
		part := strings.Split(words.Replace(line), " | ")
		decisions := inventory.Decide(read(t, changed(t, part[1])), rules(t, "devices: ["+part[2]+"]"), input())
		return []string{cmp.Or(decision(t, decisions, part[0]).Why, "offered")}
	})
}

func TestBusyDeviceKeepsItsDriver(t *testing.T) {
	goldentest.Lines(t, "testdata/busy.txt", func(line string) []string {
		device, changes, _ := strings.Cut(words.Replace(line), " | ")
		why, err := inventory.Busy(changed(t, changes), device)
		difftest.Must(t, err)
		return []string{cmp.Or(why, "free")}
	})
}

func TestOvsSystemIsNotADevice(t *testing.T) {
	for _, d := range read(t, changed(t, "openvswitch ovs-system")) {
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
	list := pool(t, changed(t, "unchanged"), configuration)
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
	devices := read(t, changed(t, "unchanged"))
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
		h := changed(t, "unchanged")
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
		"its interface is in a pod": {add(dir + "/net/"), "it has no interface in the host network namespace; if no pod has it, devinfoctl doctor on the node has the remedy"},
		"its RDMA device, too":      {strings.ReplaceAll(text, dir+"/infiniband/", dir+"/infinite/"), "it has no interface in the host network namespace; if no pod has it, devinfoctl doctor on the node has the remedy"},
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
		devices := read(t, changed(t, "unchanged"))
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

func TestDeviceThatNextPodCannotUseIsNotOffered(t *testing.T) {
	h := host(t, capturetest.Text(t, "igb-sriov"))
	plain := settings.Dump{"multicast": "on"}
	h.Conditions = []settings.Condition{
		{Name: "eth2", Dump: settings.Dump{"multicast": "on", "noarp": "on"}},
		{Name: "eth3", Dump: plain, Uppers: []string{"macvlan spy in /proc/7/ns/net"}},
		{Name: "eth4", Dump: plain},
	}
	s := input()
	s.Ours = inventory.Published{"pci-0000-01-10-0": {}} // a claim has it
	for n, want := range []string{
		"the next pod could not use it alone: eth2 has ARP off: ip link set eth2 arp on",
		"the next pod could not use it alone: eth3 has macvlan spy in /proc/7/ns/net on it: remove that interface, or end the process that keeps its network namespace",
		"",
	} {
		of := rules(t, "devices: [{drivers: [igbvf], sharing: exclusive}]")
		name := fmt.Sprintf("pci-0000-01-10-%d", 2*n)
		difftest.Same(t, name, decision(t, inventory.Decide(read(t, h), of, input()), name).Why, want)
		if n == 0 {
			difftest.Same(t, "in a pod", decision(t, inventory.Decide(read(t, h), of, s), name).Why, "")
		}
	}
}

// udev and the SR-IOV operator name PFs by altnames.
func TestRulesTakeAltNames(t *testing.T) {
	h := host(t, capturetest.Text(t, "igb-sriov"))
	for n := range h.Links {
		h.Links[n].AltNames = []string{"alt-" + h.Links[n].Name}
	}
	devices := read(t, h)
	for _, d := range devices {
		for key, name := range map[string]string{"ifNames": d.IfName, "pfNames": d.PFName} {
			if name == "" {
				continue
			}
			list := inventory.Decide(devices, rules(t, fmt.Sprintf("devices: [{%s: [alt-%s], sharing: exclusive}]", key, name)), input())
			difftest.Same(t, key+" "+d.Name, decision(t, list, d.Name).Rule, 0)
		}
	}
	of := rules(t, "devices: [{pfNames: [alt-nothing], sharing: exclusive}]")
	difftest.Contains(t, of.Unmatched(inventory.Decide(devices, of, input()), h.Links)[0].Why, "this node has no interface alt-nothing; the nearest is ")
}

// A router's advertisement takes no data NIC away from an owner who says so. What else the host needs stays.
func TestDefaultRouteByRouterAdvertisement(t *testing.T) {
	h := host(t, capturetest.Text(t, "igb-sriov"))
	const vlan = "eth2.7"
	h.Uses = map[string]string{}
	for name, test := range map[string]struct {
		uplinks, routers []string
		want             string // part of the reason; "" = offered
		allowed          string // the same with the rule's key
	}{
		"none":                {[]string{}, []string{}, "", ""},
		"advertised":          {[]string{"eth2"}, []string{"eth2"}, "net.ipv6.conf.eth2.accept_ra_defrtr=0 refuses it, and allowAdvertisedRoute in its rule offers it all the same", ""},
		"the owner's":         {[]string{"eth2"}, []string{}, "the host needs it: eth2 has a default route", "the host needs it: eth2 has a default route"},
		"unknown":             {[]string{"eth2"}, nil, "if a router advertises it, net.ipv6.conf.eth2.accept_ra_defrtr=0 refuses it", "has a default route"},
		"the owner's, above":  {[]string{"eth2", vlan}, []string{"eth2"}, "eth2 has a default route by router advertisement", "eth2 has a default route"},
		"advertised to above": {[]string{vlan}, []string{vlan}, "eth2 is below " + vlan, ""},
	} {
		h := h
		h.Links = append(slices.Clone(h.Links), listing.Interface{Index: 99, Name: vlan, Link: "eth2", Info: listing.Info{Kind: "vlan"}})
		h.Uplinks, h.Routers = test.uplinks, test.routers
		for key, want := range map[string]string{"": test.want, ", allowAdvertisedRoute: true": test.allowed} {
			got := decision(t, inventory.Decide(read(t, h), rules(t, "devices: [{drivers: [igbvf], sharing: exclusive"+key+"}]"), input()), "pci-0000-01-10-0").Why
			if want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%s%s: %q, want %q", name, key, got, want)
			}
		}
	}
}
