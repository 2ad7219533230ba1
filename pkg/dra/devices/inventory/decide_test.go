package inventory_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/listing"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
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

// offered returns the published devices of a host.
func offered(t testing.TB, h inventory.Host, configuration string) inventory.Published {
	t.Helper()
	return inventory.Pool(inventory.Decide(read(t, h), rules(t, configuration), input()), nil)
}

func pool(t testing.TB, h inventory.Host, configuration string) []inventory.Slice {
	t.Helper()
	return inventory.Slices(offered(t, h, configuration))
}

// decision returns the decision about a device.
func decision(all []*inventory.Decision, name string) *inventory.Decision {
	for _, c := range all {
		if c.Device.Name == name {
			return c
		}
	}
	return &inventory.Decision{Why: "there is no such device"}
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
var words = strings.NewReplacer("PF0", pf0, "PF1", pf1, "VF0", vf0, "VF1", vf1, "FUNCTION", function, "NIC", nic, "MLXVF", mlxVF, "RDMA", "pci-0000-17-00-1", "PORT", "devx-pci--0000-3a3b-3a00-2e0--p1",
	"GIVE", "{select: 'true', sharing: exclusive}", "SHARE", "{select: 'true', sharing: shared}",
	"USED", "uplink eth4, vlan eth3.7 on eth3, use eth2 has the address 10.1.2.3/24, use eth3.7 has a route to 10.9.0.0/16")

// changed returns the host igb-sriov, or first "host virtio-vm" or "ports 2 of ice", with changes. First to its capture: "lost
// eth1", "replace A => B", "add ENTRY"; then "uplink eth1", "router eth1" for an uplink whose route is advertised, "use eth2
// has a route", "bond bond0", "vlan eth1.7 on eth1", "port eth1 of bond0", "without interfaces".
func changed(t testing.TB, changes string) (h inventory.Host) {
	t.Helper()
	var text []byte
	parse := func(now []byte) {
		text, h = now, host(t, now)
		h.Uplinks, h.Routers = []string{}, nil
	}
	parse(capturetest.Text(t, "igb-sriov"))
	for _, change := range strings.Split(changes, ", ") {
		what, rest, _ := strings.Cut(change, " ")
		name, more, _ := strings.Cut(rest, " ")
		_, other, _ := strings.Cut(more, " ")
		switch what {
		case "unchanged":
		case "host":
			parse(capturetest.Text(t, name))
		case "lost":
			parse(capturetest.Without(text, name))
		case "replace":
			from, to, _ := strings.Cut(strings.ReplaceAll(rest, `\n`, "\n"), " => ")
			parse(bytes.ReplaceAll(text, []byte(from), []byte(to)))
		case "add":
			parse(append(text, "-- "+rest+" --\n"...))
		case "ports":
			n, err := strconv.Atoi(name)
			difftest.Must(t, err)
			parse(capturetest.Ports(other, n))
			h.Uses = map[string]string{}
		case "without":
			h.Links = nil
		case "uplink":
			h.Uplinks = append(h.Uplinks, name)
		case "router":
			h.Routers = append(h.Routers, name)
		case "use":
			if h.Uses == nil {
				h.Uses = map[string]string{}
			}
			h.Uses[name] = more
		case "port":
			h.Links[slices.IndexFunc(h.Links, func(l listing.Interface) bool { return l.Name == name })].Master = other
		default:
			h.Links = append([]listing.Interface{{Name: name, Link: other, Info: listing.Info{Kind: what}, MTU: 1500}}, h.Links...)
		}
	}
	return h
}

func TestDevicesThatHostNeedsAreNotOffered(t *testing.T) {
	goldentest.Lines(t, "testdata/decided.txt", func(line string) []string {
		part := strings.Split(words.Replace(line), " | ")
		decisions := inventory.Decide(read(t, changed(t, part[1])), rules(t, "devices: ["+part[2]+"]"), input())
		return []string{cmp.Or(decision(decisions, part[0]).Why, "offered")}
	})
}

func TestBusyDeviceKeepsItsDriver(t *testing.T) {
	goldentest.Lines(t, "testdata/busy.txt", func(line string) []string {
		device, changes, _ := strings.Cut(words.Replace(line), " | ")
		why, err := inventory.Busy(changed(t, changes), device)
		difftest.Must(t, err)
		return []string{cmp.Or(why, "free")}
	})
	h := changed(t, "host virtio-vm")
	capturetest.EachFailure(h.Sys.Files(), func(sys fs.FS, failed *string) {
		h.Sys = sysfs.New(sys)
		if why, err := inventory.Busy(h, nic); err == nil && strings.Contains(*failed, "0000:00:03.0") {
			t.Errorf("%s fails, and the device is free: %q", *failed, why)
		}
	})
}

func TestFirstMatchingRuleApplies(t *testing.T) {
	const configuration = `devices:
- {pfNames: [eth1], sharing: exclusive, attributes: {physicalNetwork: blue}, bandwidth: }
- {drivers: [igbvf], select: 'device.attributes["devinfo-cni.io"].vfIndex == 0', sharing: exclusive, attributes: {physicalNetwork: red, example.com/rack: 7, fast: true}}
`
	all, networks := offered(t, changed(t, "unchanged"), configuration), map[string]string{}
	for name, d := range all {
		networks[name] = *d.Attributes["devinfo-cni.io/physicalNetwork"].StringValue
	}
	difftest.Equal(t, networks, map[string]string{vf0: "red", vf1: "blue", "pci-0000-41-10-2": "blue"})
	d := all[vf0]
	if *d.Attributes["example.com/rack"].IntValue != 7 || !*d.Attributes["devinfo-cni.io/fast"].BoolValue {
		t.Errorf("got %s", describe(d))
	}
}

// The scheduler waits for a tainted device. One that a claim holds, or that pods can share, need not be known free.
func TestTaintsFollowCarrierAndUnknownAllocations(t *testing.T) {
	const held = "pci-0000-41-10-2"
	for name, test := range map[string]struct {
		flags   []string // of the PF
		unknown bool     // whether pods have devices outside DRA
		free    string   // taint of a free VF
		others  string   // of a held VF, and of the PF
	}{
		"up": {[]string{"UP"}, false, "", ""}, "down": {nil, false, "", ""},
		"no carrier":       {[]string{"NO-CARRIER", "UP"}, false, inventory.TaintNoCarrier, inventory.TaintNoCarrier},
		"pods are unknown": {[]string{"UP"}, true, inventory.TaintAllocationUnknown, ""},
	} {
		h, s := changed(t, "unchanged"), input()
		for n, l := range h.Links {
			if l.Name == "eth1" {
				h.Links[n].Flags = test.flags
			}
		}
		s.Unknown, s.Ours = test.unknown, inventory.Published{held: {Name: held}}
		now := inventory.Pool(inventory.Decide(read(t, h), rules(t, everything), s), s.Ours)
		for device, taint := range map[string]string{vf1: test.free, held: test.others, pf1: test.others} {
			got := now[device].Name
			for _, t := range now[device].Taints {
				got += t.Key
			}
			difftest.Same(t, name, got, device+taint)
		}
	}
}

func TestDeviceThatNextPodCannotUseIsNotOffered(t *testing.T) {
	h := host(t, capturetest.Text(t, "igb-sriov"))
	h.Blind = errors.New("no dump")
	_, warnings, err := inventory.Read(h)
	difftest.Must(t, err)
	difftest.Equal(t, warnings, []string{"cannot tell what earlier pods left on interfaces: no dump"})
	h.Blind = nil
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
		difftest.Same(t, name, decision(inventory.Decide(read(t, h), of, input()), name).Why, want)
		if n == 0 {
			difftest.Same(t, "in a pod", decision(inventory.Decide(read(t, h), of, s), name).Why, "")
		}
	}
}

// udev and the SR-IOV operator name PFs by altnames.
func TestRulesTakeAltNames(t *testing.T) {
	h := host(t, capturetest.Text(t, "igb-sriov"))
	longest := func(name string) string { return strings.Repeat("a", 127-len(name)) + name }
	for n, l := range h.Links {
		h.Links[n].AltNames = []string{"alt-" + l.Name, longest(l.Name)}
	}
	devices := read(t, h)
	for _, d := range devices {
		for key, name := range map[string]string{"ifNames": d.IfName, "pfNames": inventory.Text(d.Attributes, inventory.AttrPFName)} {
			if name == "" {
				continue
			}
			list := inventory.Decide(devices, rules(t, fmt.Sprintf("devices: [{%s: [%s], sharing: exclusive}]", key, longest(name))), input())
			difftest.Same(t, key+" "+d.Name, decision(list, d.Name).Rule, 0)
		}
	}
}
