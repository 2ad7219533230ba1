package settings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"

	"devinfo-cni.io/pkg/host/rtnetlink"
	"devinfo-cni.io/pkg/host/stack"
)

// Condition is what the kernel reports of a hardware interface that no pod has. [Usable] judges it.
type Condition struct {
	Device string   `json:"device"` // PCI address, or name on another bus
	Name   string   `json:"name"`   // in the host's network namespace
	Dump   Dump     `json:"dump"`
	Zero   bool     `json:"zero,omitempty"` // its hardware address consists of zeros
	Uppers []string `json:"uppers,omitempty"`

	// [Conditions] leaves this to callers, who know the number of a VF on its PF.
	VF *VFRecord `json:"vf,omitempty"` // nil = not a VF, or the PF does not report its settings
}

// A Fault is a rule that a free device breaks, so that the next pod gets no traffic, or somebody else gets it too.
type Fault struct {
	Rule   string // name of the rule: a setting of the [Dump], "stacked", "mac" or "vf-link-state"
	Found  string // "ARP off"
	Remedy string // the command that mends it
}

// Usable returns the rules that a free device breaks; none = the next pod can use it. An administrator may have wanted
// what breaks a rule: nothing of it says who has set it. What an owner often sets on purpose, such as VLAN, trust and
// rate, breaks none.
func Usable(c Condition) (faults []Fault) {
	add := func(is bool, rule, found, remedy string) {
		if is {
			faults = append(faults, Fault{rule, found, remedy})
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
	}
	for _, upper := range c.Uppers {
		add(true, Stacked, upper+" on it", "remove that interface, or end the process that keeps its network namespace")
	}
	add(c.Zero, "mac", "a hardware address of zeros", set+"address MAC")
	if c.VF != nil {
		add(c.VF.LinkState == nl.IFLA_VF_LINK_STATE_DISABLE, VFLinkState, "link state disable on its PF",
			fmt.Sprintf("ip link set %s vf %d state auto", c.VF.PFName, c.VF.Index))
	}
	return faults
}

// Stacked is the name of the rule that nothing is stacked on a free interface.
const Stacked = "stacked"

// Conditions reads the hardware interfaces of the current network namespace, and looks for interfaces on them in all
// namespaces of the processes below proc. Without privilege it sees fewer of these.
func Conditions(proc string) (list []Condition, err error) {
	c, err := rtnetlink.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	answers, err := c.Links(rtnetlink.SkipStats)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	uppers, err := stack.Find(proc)
	if err != nil {
		return nil, err
	}
	for _, answer := range answers {
		l, err := rtnetlink.ParseLink(answer, rtnetlink.Local)
		if err != nil {
			return nil, err
		}
		one := Condition{Device: cmp.Or(l.Parent, c.BusInfo(l.Name)), Name: l.Name, Zero: len(l.MAC) > 0 && hardware(l.MAC) == ""}
		if one.Device == "" {
			continue
		}
		if one.Dump, err = dump(answer); err != nil {
			return nil, err
		}
		readPrograms(l.Index, one.Dump)
		for _, u := range uppers[l.Index] {
			one.Uppers = append(one.Uppers, u.String())
		}
		list = append(list, one)
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
