package settings

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"

	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/rtnetlink"
	"devinfo-cni.io/pkg/host/stack"
)

// Condition is what the kernel reports of a hardware device, or of an interface of it, that no pod has. [Usable] judges it.
type Condition struct {
	Device    string   `json:"device"`         // PCI address, or name on another bus
	Name      string   `json:"name,omitempty"` // its interface in the host's network namespace; "" = none
	Dump      Dump     `json:"dump,omitempty"`
	Zero      bool     `json:"zero,omitempty"` // its hardware address consists of zeros
	Uppers    []string `json:"uppers,omitempty"`
	Elsewhere string   `json:"elsewhere,omitempty"` // its interface in another network namespace: "net1 in /proc/7/ns/net"; "" = none that is visible

	// [Conditions] leaves these to callers, who have read /sys.
	VF     *VFRecord       `json:"vf,omitempty"` // nil = not a VF, or the PF does not report its settings
	Of     *hostdev.Device `json:"-"`            // nil = only the interface is judged
	Carry  bool            `json:"-"`            // other devices are on it, such as the vDPA device of a VF
	Closed bool            `json:"-"`            // only the host's network namespace can open RDMA devices
}

// A Fault is a rule that a free device breaks, so that the next pod cannot use it, or somebody else gets its traffic too.
type Fault struct {
	Rule   string // name of the rule: a setting of the [Dump], or one of the constants below
	Found  string // "eth3 has ARP off"
	Remedy string // the command that mends it
	Maybe  bool   // whether it harms depends on the network of the next pod, whose plugins may set it in ADD
}

// The names of the rules that are no settings. [VFLinkState] and [AltNames] are rules too.
const (
	Stacked     = "stacked"   // nothing is stacked on its interface
	NoDriver    = "driver"    // it has a driver
	NoInterface = "interface" // its interface is in the host's network namespace
	NoRDMA      = "rdma"      // pods can open the RDMA devices of a device without an interface
	ZeroMAC     = "mac"
	ZeroGUID    = "guid"
)

// namesOfPods matches the names that Multus gives to interfaces of pods.
var namesOfPods = regexp.MustCompile(`^net[0-9]+$`)

// Usable returns the rules that a free device breaks; none = the next pod can use it. doctor, inspect and cni-dra-driver
// all ask here. An administrator may have wanted what breaks a rule: nothing of it says who has set it. What an owner often
// sets on purpose, such as VLAN, trust and rate, breaks none.
func Usable(c Condition) (faults []Fault) {
	if c.Of != nil {
		faults = c.device()
	}
	add := func(is bool, rule, found, remedy string) {
		if is {
			faults = append(faults, Fault{rule, c.Name + " has " + found, remedy, rule == AltNames})
		}
	}
	set := "ip link set " + c.Name + " "
	if c.Dump != nil {
		add(c.Dump["noarp"] != "", "noarp", "ARP off", set+"arp on")
		add(c.Dump["multicast"] == "", "multicast", "multicast off", set+"multicast on")
		add(c.Dump["mode"] != "" && c.Dump.Text("mode") != "0", "mode", "mode "+c.Dump.Text("mode"), set+"mode default")
		for _, mode := range []string{"xdp", "xdpgeneric", "xdpoffload"} {
			add(c.Dump[mode] != "", mode, mode+" "+c.Dump[mode], set+mode+" off")
		}
		for _, point := range []string{"tcx-ingress", "tcx-egress"} {
			add(c.Dump[point] != "", point, point+" "+c.Dump[point], "bpftool net detach "+strings.ReplaceAll(point, "-", "_")+" dev "+c.Name)
		}
		for _, name := range strings.Fields(c.Dump[AltNames]) { // an interface cannot be renamed to its own altname: EEXIST
			add(namesOfPods.MatchString(name), AltNames, "the altname "+name+" of an interface of a pod", "ip link property del dev "+c.Name+" altname "+name)
		}
	}
	for _, upper := range c.Uppers {
		add(true, Stacked, upper+" on it", "remove that interface, or end the process that keeps its network namespace")
	}
	add(c.Zero, ZeroMAC, "a hardware address of zeros", set+"address MAC")
	if c.VF != nil && c.VF.LinkState == nl.IFLA_VF_LINK_STATE_DISABLE {
		faults = append(faults, Fault{VFLinkState, "it has link state disable on its PF", fmt.Sprintf("ip link set %s vf %d state auto", c.VF.PFName, c.VF.Index), true})
	}
	return faults
}

// device returns the rules that the device itself breaks.
func (c Condition) device() []Fault {
	d, remedy := c.Of, ""
	switch {
	case d.Kind == hostdev.VDPA && d.Driver == "":
		return []Fault{{NoDriver, "it has no driver", "modprobe vhost_vdpa for VMs and DPDK, virtio_vdpa for an interface; " +
			"if vhost_vdpa is loaded: echo " + d.VDPA + " > /sys/bus/vdpa/drivers/vhost_vdpa/bind", false}}
	case d.PCI != "" && d.Driver == "":
		remedy = "load the module of its driver and bind it: "
		if d.Parent != nil {
			remedy += "echo 1 > /sys/bus/pci/devices/" + d.Parent.PCI + "/sriov_drivers_autoprobe; "
		}
		return []Fault{{NoDriver, "it has no driver", remedy + "echo " + d.PCI + " > /sys/bus/pci/drivers_probe; for DPDK bind vfio-pci", false}}
	case d.RDMA.LinkLayer == "InfiniBand" && d.RDMA.GUID != "" && strings.Trim(d.RDMA.GUID, "0:") == "" && c.VF != nil:
		return []Fault{{ZeroGUID, "its node GUID is zero", fmt.Sprintf("ip link set %s vf %d node_guid GUID, and port_guid, then bind it again, unless ib-sriov-cni sets the GUID in ADD", c.VF.PFName, c.VF.Index), true}}
	case !d.LacksInterface() || c.Carry || d.OnlyRDMA() && !c.Closed:
		return nil
	case d.OnlyRDMA():
		return []Fault{{NoRDMA, "it has no interface, and only the host's network namespace can open its RDMA devices", "ib_core.netns_mode=1, set at boot, opens them to pods", false}}
	case c.Elsewhere != "":
		return []Fault{{NoInterface, "its interface is " + c.Elsewhere, "end the process or the pod that keeps that network namespace", false}}
	}
	at := "/sys/bus/" + d.At.Bus
	return []Fault{{NoInterface, "it has no interface in the host network namespace", fmt.Sprintf("if no pod has it, echo %s > %s/devices/%s/driver/unbind; echo %s > %s/drivers_probe",
		d.At.Name, at, d.At.Name, d.At.Name, at), false}}
}

// Conditions reads the hardware interfaces of the current network namespace, and looks for interfaces on them, and for
// further hardware interfaces, in all namespaces of the processes below proc. Without privilege it sees fewer of these.
func Conditions(proc string) (list []Condition, err error) {
	c := rtnetlink.Dial()
	defer c.Close()
	links, err := c.Links(rtnetlink.SkipStats)
	if err != nil {
		return nil, err
	}
	uppers, away, err := stack.Find(proc)
	if err != nil {
		return nil, err
	}
	return conditions(links, c.BusInfo, uppers, away)
}

func conditions(links []rtnetlink.Link, busInfo func(rtnetlink.Link) string, uppers map[int][]stack.Upper, away map[string]string) (list []Condition, err error) {
	for _, l := range links {
		one := Condition{Device: stack.Device(l, busInfo), Name: l.Name, Zero: len(l.MAC) > 0 && hardware(l.MAC) == ""}
		if one.Device == "" {
			continue
		}
		if one.Dump, err = dump(l); err == nil {
			err = readPrograms(l.Index, one.Dump)
		}
		if err != nil {
			return nil, err
		}
		for _, u := range uppers[l.Index] {
			one.Uppers = append(one.Uppers, u.String())
		}
		list = append(list, one)
	}
	for _, device := range slices.Sorted(maps.Keys(away)) {
		list = append(list, Condition{Device: device, Elsewhere: away[device]})
	}
	return list, nil
}

// Memory calls [Conditions], and for half a minute remembers that all interfaces were usable: on a node with many pods it
// takes long to look into all network namespaces.
type Memory struct {
	Proc string

	mu    sync.Mutex
	clean time.Time
	list  []Condition
}

func (m *Memory) Conditions() (list []Condition, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.clean) < 30*time.Second {
		return m.list, nil
	}
	if list, err = Conditions(m.Proc); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(list, func(c Condition) bool { return Usable(c) != nil }) {
		m.clean, m.list = time.Now(), list
	}
	return list, nil
}
