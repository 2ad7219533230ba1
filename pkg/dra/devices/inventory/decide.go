package inventory

import (
	"cmp"
	"fmt"
	"maps"

	"devinfo-cni.io/pkg/hostdev"
)

// Situation is what decides, beside devices and rules, what is offered.
type Situation struct {
	Driver string // the DRA driver's name, for CEL's device.driver
	// Sharing says that the API server keeps allowMultipleAllocations, as it does from
	// Kubernetes 1.36 on.
	Sharing bool
	// Ours are the devices, by name, that claims hold according to our own records, and how.
	// They stay in the pool, as they were: see [Slices]. What keeps them busy is we; but they may
	// be offered no more.
	Ours map[string]As
	// Last is as what they were published: in a pod a device has lost what rules go by.
	Last Published
	// Withheld are those of them that are not yet what they were before a pod had them.
	Withheld map[string]bool
	// Others are the devices that somebody else has, by PCI address, auxiliary name or vDPA
	// name, each with the holder: see package others.
	Others map[string]string
	// Unknown says that Others may lack devices: one that is offered as exclusive is tainted.
	Unknown bool
}

// Decision says whether and how a device is offered.
type Decision struct {
	Device Device
	Rule   int    // index of the rule that the device meets; -1 = none
	As     As     // as the rule says; "" without rule
	Why    string // why it is left out; "" = it is offered

	rule    *rule         // nil = none
	on      *Decision     // of the device that it is on; nil = none
	unknown bool          // somebody may have it
	failed  map[int]error // by rule: why its select has no result
}

// isBelow says whether the device is on another, or on what is.
func (c *Decision) isBelow(other string) bool {
	for up := c.on; up != nil; up = up.on {
		if up.Device.Name == other {
			return true
		}
	}
	return false
}

// Decide says for each device whether it is offered and, if not, why.
func Decide(devices []Device, rules Rules, s Situation) []Decision {
	decisions := make([]Decision, len(devices))
	at, on := map[string]*Decision{}, map[string][]string{} // by name; to those on it
	for n := range devices {
		decisions[n] = rules.choose(s.asOffered(&devices[n]), s.Driver)
		decisions[n].Device = devices[n]
		at[devices[n].Name] = &decisions[n]
	}
	for n, d := range devices {
		if decisions[n].on = at[d.On]; d.On != "" {
			on[d.On] = append(on[d.On], d.Name)
		}
	}
	tied := s.tied(decisions)
	for n := range decisions {
		c := &decisions[n]
		held := s.Ours[c.Device.Name]
		switch {
		case c.Why != "":
			continue
		case held == Shared && c.As != Shared:
			c.Why = "pods share it: it is offered as exclusive once no claim holds it"
			continue
		case held == Exclusive && c.As != Exclusive:
			c.Why = "a claim has it to itself: it is offered as shared once no claim holds it"
			continue
		case held == Exclusive: // what else keeps it busy is the claim
			c.Why = c.Device.UsedByHost()
			continue
		}
		if c.Why = s.against(c, on[c.Device.Name]); c.Why == "" && c.As == Exclusive {
			c.Why, c.unknown = tied[c.Device.Name], s.Unknown
		}
	}
	s.exclude(decisions)
	return decisions
}

// StillOffers says whether decisions of a moment ago, by name, hold for a device that they offer. If
// it cannot tell it says no.
func (s Situation) StillOffers(decisions map[string]Decision, name string) bool {
	c, there := decisions[name]
	if !there || c.Why != "" {
		return false
	}
	if c.As != Exclusive {
		return true
	}
	var line []Decision // what ties it is on it, or what it is on: not a thousand others
	for other, d := range decisions {
		if other == name || d.isBelow(name) || c.isBelow(other) {
			line = append(line, d)
		}
	}
	return s.others(&c.Device) == "" && s.tied(line)[name] == ""
}

// asOffered is a device with what rules go by as it was when it was offered, if a claim has it.
func (s Situation) asOffered(d *Device) *Device {
	last, known := s.Last[d.Name]
	if !known || s.Ours[d.Name] != Exclusive {
		return d
	}
	was := *d
	was.Attributes = maps.Clone(d.Attributes)
	for _, name := range AttributeNames() {
		if v, has := last.Attributes[name]; has && name != DeviceID && name != ResourceName {
			was.Attributes[name] = v
		}
	}
	was.IfName, was.PFName, was.Driver = was.text(AttrIfName), was.text(AttrPFName), was.text(AttrDriver)
	return &was
}

// others says which of the others has a device; "" = none.
func (s Situation) others(d *Device) string {
	return cmp.Or(s.Others[d.ID()], s.Others[d.text(PCIBusID)], s.Others[d.VDPA])
}

// tied says of devices, by name, that somebody has what they are on, or what is on them.
// That goes by nothing that rules name: a device in a pod has lost its interface.
func (s Situation) tied(decisions []Decision) map[string]string {
	why := map[string]string{}
	tie := func(c *Decision, has *Device, how string) {
		text := fmt.Sprintf("a claim holds %s, %s", has.Name, how)
		if others := s.others(has); others != "" {
			text = fmt.Sprintf("%s, %s: %s", has.Name, how, others)
		}
		why[c.Device.Name] = cmp.Or(why[c.Device.Name], text)
	}
	for n := range decisions {
		c := &decisions[n]
		for up := c.on; up != nil; up = up.on {
			if s.isHeld(&up.Device) {
				tie(c, &up.Device, "which it is on")
			}
			if s.isHeld(&c.Device) {
				tie(up, &c.Device, "which is on it")
			}
		}
	}
	return why
}

// isHeld says whether somebody has a device to himself.
func (s Situation) isHeld(d *Device) bool {
	return s.Withheld[d.Name] || s.Ours[d.Name] == Exclusive || s.Ours[d.Name] == "" && s.others(d) != ""
}

// against gives the reason for leaving out a device that a rule names; "" = none.
func (s Situation) against(c *Decision, on []string) string {
	d := &c.Device
	switch {
	case d.Port != "":
		return d.UsedByHost()
	case c.As == Shared:
		return s.againstShared(c)
	case isMaster(d.Kind):
		return fmt.Sprintf("a %s cannot be exclusive", d.Kind)
	case d.Uplink != "":
		return d.UsedByHost()
	case d.HostUse != "" && !c.rule.AllowHostUse && !c.rule.names(d):
		return fmt.Sprintf("the host uses it: %s: to offer it all the same, name it by ifNames or pciAddresses, or set allowHostUse", d.HostUse)
	case isNIC(d.Kind) && len(on) > 0:
		return fmt.Sprintf("it has %s on it: they would lose their parent", count(on))
	case s.others(d) != "":
		return s.others(d)
	case d.Kind == hostdev.VDPA && d.text(AttrVDPADriver) == "":
		return "no driver is bound to it: bind vhost_vdpa or virtio_vdpa"
	case d.moved() || d.Verbs && d.IfName == "" && len(on) > 0:
		return lacks(d, on)
	case c.rule.ResourceName != "" && d.ID() == "":
		return "the rule gives a resourceName, and the device has neither PCI address nor auxiliary name for Multus"
	}
	return ""
}

func (s Situation) againstShared(c *Decision) string {
	d := &c.Device
	switch {
	case !isNIC(d.Kind) && !isMaster(d.Kind):
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
		return fmt.Sprintf("it has no interface here, but %s on it", count(on))
	case d.PCI != "" && d.Driver == "":
		return "no driver is bound to it"
	case d.Closed:
		return "it has no interface, and its RDMA devices are the host's network namespace's alone: rdma system set netns shared opens them to pods"
	}
	return "it has no interface here, as if it were in another network namespace"
}

// exclude leaves out devices that others are on which are offered: the same hardware is not
// given twice.
func (s Situation) exclude(decisions []Decision) {
	for n := range decisions {
		c := &decisions[n]
		for up := c.on; up != nil && c.Why == "" && c.As == Exclusive; up = up.on {
			if up.Why == "" && up.As == Exclusive && s.Ours[up.Device.Name] == "" {
				up.Why = fmt.Sprintf("%s on it is offered", c.Device.Name)
			}
		}
	}
}
