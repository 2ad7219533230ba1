package inventory

import (
	"cmp"
	"fmt"
	"maps"

	"devinfo-cni.io/pkg/hostdev"
)

// Situation is what decides, beside devices and rules, what is offered.
type Situation struct {
	Driver   string            // the DRA driver's name, for CEL's device.driver
	Sharing  bool              // the API server keeps allowMultipleAllocations, as it does from Kubernetes 1.36 on
	Ours     map[string]As     // how claims on record hold devices, by name; these stay in the pool: see [Slices]
	Last     Published         // devices as they were last published: in a pod a device loses facts that rules need
	Withheld map[string]bool   // those of Ours that are not restored yet
	Others   map[string]string // holders outside DRA, by PCI address, auxiliary name or vDPA name: see package others
	Unknown  bool              // Others may lack devices, so exclusive ones are tainted
}

// Decision is whether and how a device is offered.
type Decision struct {
	Device Device
	Rule   int    // index of the rule that the device meets; -1 = none
	As     As     // as the rule says; "" without rule
	Why    string // why it is left out; "" = it is offered

	rule    *rule         // nil = none
	on      *Decision     // of the device that it is on; nil = none
	unknown bool          // it may be allocated outside DRA
	failed  map[int]error // by rule: why its select has no result
}

// Decide returns for each device whether it is offered and, if not, why.
func Decide(devices []Device, rules Rules, s Situation) []Decision {
	decisions := make([]Decision, len(devices))
	at, on := map[string]*Decision{}, map[string][]string{} // by name; the devices on it
	for n, d := range devices {
		decisions[n] = rules.choose(s.asOffered(&d), s.Driver)
		decisions[n].Device = d
		at[d.Name] = &decisions[n]
	}
	for n, d := range devices {
		if decisions[n].on = at[d.On]; d.On != "" {
			on[d.On] = append(on[d.On], d.Name)
		}
	}
	tied := s.tied(decisions)
	for n := range decisions {
		c := &decisions[n]
		switch held := s.Ours[c.Device.Name]; {
		case c.Why != "":
		case held == Shared && c.As != Shared:
			c.Why = "pods share it: it is offered as exclusive once no claim holds it"
		case held == Exclusive && c.As != Exclusive:
			c.Why = "a claim has it to itself: it is offered as shared once no claim holds it"
		case held == Exclusive: // the claim is what else would keep it busy
			c.Why = c.Device.UsedByHost()
		default:
			if c.Why = s.against(c, on[c.Device.Name]); c.Why == "" && c.As == Exclusive {
				c.Why, c.unknown = tied[c.Device.Name], s.Unknown
			}
		}
	}
	for n := range decisions { // a device and one that it is on are the same hardware
		c := &decisions[n]
		for up := c.on; up != nil && c.Why == "" && c.As == Exclusive; up = up.on {
			if up.Why == "" && up.As == Exclusive && s.Ours[up.Device.Name] == "" {
				up.Why = fmt.Sprintf("%s on it is offered", c.Device.Name)
			}
		}
	}
	return decisions
}

// StillOffers reports whether recent decisions, by name, hold for a device that they offer. It returns false
// if it cannot tell.
func (s Situation) StillOffers(decisions map[string]Decision, name string) bool {
	c, there := decisions[name]
	if !there || c.Why != "" {
		return false
	}
	if c.As != Exclusive {
		return true
	}
	for other, d := range decisions {
		for up := d.on; up != nil; up = up.on {
			if other == name && s.isHeld(&up.Device) || up.Device.Name == name && s.isHeld(&d.Device) {
				return false
			}
		}
	}
	return s.others(&c.Device) == ""
}

// asOffered returns a device with the facts that rules need as they were when it was offered, if a claim
// has it.
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

// others returns who has a device outside DRA; "" = nobody.
func (s Situation) others(d *Device) string {
	return cmp.Or(s.Others[d.ID()], s.Others[d.text(PCIBusID)], s.Others[d.VDPA])
}

// isHeld reports whether a device is held exclusively.
func (s Situation) isHeld(d *Device) bool {
	return s.Withheld[d.Name] || s.Ours[d.Name] == Exclusive || s.Ours[d.Name] == "" && s.others(d) != ""
}

// tied returns the devices that are on a held device, or have a held one on them, each with the reason. It
// reads no fact that rules need, since a device in a pod has lost its interface.
func (s Situation) tied(decisions []Decision) map[string]string {
	why := map[string]string{}
	tie := func(c *Decision, to *Device, how string) {
		switch by := s.others(to); {
		case !s.isHeld(to) || why[c.Device.Name] != "":
		case by != "":
			why[c.Device.Name] = fmt.Sprintf("%s, %s: %s", to.Name, how, by)
		default:
			why[c.Device.Name] = fmt.Sprintf("a claim holds %s, %s", to.Name, how)
		}
	}
	for n := range decisions {
		c := &decisions[n]
		for up := c.on; up != nil; up = up.on {
			tie(c, &up.Device, "which it is on")
			tie(up, &c.Device, "which is on it")
		}
	}
	return why
}

// against returns why a device that a rule names is left out; "" = it is not. on are the devices on it.
func (s Situation) against(c *Decision, on []string) string {
	d := &c.Device
	useless := d.moved() || d.Verbs && d.IfName == "" && len(on) > 0
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
	case useless && len(on) > 0:
		return fmt.Sprintf("it has no interface here, but %s on it", count(on))
	case useless && d.PCI != "" && d.Driver == "":
		return "no driver is bound to it"
	case useless && d.Closed:
		return "it has no interface, and its RDMA devices are the host's network namespace's alone: rdma system set netns shared opens them to pods"
	case useless:
		return noInterface
	case c.rule.ResourceName != "" && d.ID() == "":
		return "the rule gives a resourceName, and the device has neither PCI address nor auxiliary name for Multus"
	}
	return ""
}

const noInterface = "it has no interface here, as if it were in another network namespace"

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
