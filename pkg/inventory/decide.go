package inventory

import "fmt"

// Situation is what decides, beside devices and rules, what is offered.
type Situation struct {
	Driver string // the DRA driver's name, for CEL's device.driver
	// Sharing says that the API server keeps allowMultipleAllocations, as it does from
	// Kubernetes 1.36 on.
	Sharing bool
	// Counters says that the API server keeps counters and the scheduler minds them
	// (DRAPartitionableDevices): then a PF can be offered whole beside what is on it.
	Counters bool
	// Ours are the devices, by name, that claims hold according to our own records. They are
	// offered in any case: it is we who keep them busy.
	Ours map[string]bool
	// Others are the devices that another allocator has given away, by PCI address or
	// auxiliary name, each with the holder: see [Allocated] and [Locks].
	Others map[string]string
}

// Decision says whether and how a device is offered.
type Decision struct {
	Device Device
	Rule   int    // index of the rule that the device meets; -1 = none
	As     As     // as the rule says; "" without rule
	Why    string // why it is left out; "" = it is offered
	Taken  string // with counters: the device on it, or that it is on, that a claim holds; "" = none

	rule  *rule // nil = none
	share share
}

// Decide says for each device whether it is offered and, if not, why.
func Decide(devices []Device, rules Rules, s Situation) []Decision {
	decisions := make([]Decision, len(devices))
	on := map[string][]string{} // device to those on it
	for n := range devices {
		decisions[n] = rules.choose(&devices[n], s.Driver)
		if parent := devices[n].On; parent != "" {
			on[parent] = append(on[parent], devices[n].Name)
		}
	}
	for n := range decisions {
		c := &decisions[n]
		if c.Why == "" && !s.Ours[c.Device.Name] {
			c.Why = s.against(c, on[c.Device.Name])
		}
	}
	s.exclude(decisions)
	s.count(decisions)
	return decisions
}

// StillOffered says whether decisions of a moment ago, by name, still hold for a device that
// they offer, while claims hold ours and others what they hold. If it cannot tell it says no.
func StillOffered(decisions map[string]Decision, name string, ours map[string]bool, others map[string]string) bool {
	c, there := decisions[name]
	if !there || c.Why != "" || c.Taken != "" || c.As == Exclusive && (others[c.Device.ID()] != "" || others[c.Device.text(PCIBusID)] != "") {
		return false
	}
	under := func(name, above string) bool {
		for up := decisions[name].Device.On; up != ""; up = decisions[up].Device.On {
			if up == above {
				return true
			}
		}
		return false
	}
	for held := range ours {
		if c.As == Exclusive && (under(held, name) || under(name, held)) {
			return false
		}
	}
	return true
}

// choose finds the first rule that a device meets.
func (r Rules) choose(d *Device, driver string) Decision {
	c := Decision{Device: *d, Rule: -1, Why: "no rule names it"}
	for n := range r.list {
		met, err := r.list[n].meets(d, driver)
		if err != nil {
			c.Why = fmt.Sprintf("no rule names it; devices[%d].%v", n, err)
		}
		if met {
			return Decision{Device: *d, Rule: n, As: r.list[n].As, rule: &r.list[n]}
		}
	}
	return c
}

// against gives the reason for leaving out a device that a rule names; "" = none.
func (s Situation) against(c *Decision, on []string) string {
	d := &c.Device
	switch {
	case d.Port != "":
		return fmt.Sprintf("%s is a port of %s", d.IfName, d.Port)
	case c.As == Shared:
		return s.againstShared(c)
	case !d.Kind.mayBeExclusive():
		return fmt.Sprintf("a %s cannot be exclusive", d.Kind)
	case d.Uplink != "":
		return "the host needs it: " + d.Uplink
	case d.Kind.isNIC() && len(on) > 0 && !s.counts(d):
		return fmt.Sprintf("it has %s on it: they would lose their parent", number(on))
	case s.Others[d.ID()] != "":
		return s.Others[d.ID()]
	case s.Others[d.text(PCIBusID)] != "":
		return s.Others[d.text(PCIBusID)]
	case d.Kind == VDPA && d.text(AttrVDPADriver) == "":
		return "no driver is bound to it: bind vhost_vdpa or virtio_vdpa"
	case d.moved():
		return lacks(d, on)
	case c.rule.ResourceName != "" && d.ID() == "":
		return "the rule gives a resourceName, and the device has neither PCI address nor auxiliary name for Multus"
	}
	return ""
}

func (s Situation) againstShared(c *Decision) string {
	d := &c.Device
	switch {
	case !d.Kind.mayBeShared():
		return fmt.Sprintf("a %s cannot be shared", d.Kind)
	case d.IfName == "":
		return "it has no interface that could be shared"
	case d.Uplink != "" && !c.rule.names(d):
		return fmt.Sprintf("the host needs it: %s; to share it, name it by ifNames or pciAddresses", d.Uplink)
	case !s.Sharing:
		return "the API server cannot share devices, as Kubernetes can from 1.36 on"
	}
	return ""
}

// lacks says why a device is of no use that has no interface.
func lacks(d *Device, on []string) string {
	switch {
	case len(on) > 0:
		return fmt.Sprintf("it has no interface here, but %s on it", number(on))
	case d.PCI != nil && d.Driver == "":
		return "no driver is bound to it"
	}
	return "it has no interface here, as if it were in another network namespace"
}

// counts says whether counters keep the device and what is on it apart.
func (s Situation) counts(d *Device) bool { return s.Counters && d.Kind == PF }

func number(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%d devices", len(names))
}

// exclude leaves out devices that are on one another: the same hardware is not given
// twice. What a claim holds stays; else what is on top does, a vDPA device on its VF.
func (s Situation) exclude(decisions []Decision) {
	at := map[string]*Decision{}
	for n := range decisions {
		at[decisions[n].Device.Name] = &decisions[n]
	}
	for n := range decisions {
		c := &decisions[n]
		for up := at[c.Device.On]; up != nil && c.Why == "" && c.As == Exclusive; up = at[up.Device.On] {
			switch {
			case up.Why != "" || up.As != Exclusive || s.counts(&up.Device):
			case s.Ours[up.Device.Name]:
				c.Why = fmt.Sprintf("a claim holds %s, which it is on", up.Device.Name)
			default:
				up.Why = fmt.Sprintf("%s on it is offered", c.Device.Name)
			}
		}
	}
}
