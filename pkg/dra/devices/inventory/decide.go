package inventory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/dynamic-resource-allocation/cel"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/sysfs"
)

// DecideInput is the state that [Decide] needs in addition to devices and rules.
type DecideInput struct {
	Driver  string            // name of the DRA driver, for device.driver in CEL
	Sharing bool              // the API server does not drop the field allowMultipleAllocations (true since Kubernetes 1.36)
	Ours    Published         // devices that claims hold, as last published; these devices stay in the pool: see [Slices]
	Others  map[string]string // holders outside DRA that have a device alone, by PCI address, auxiliary name or vDPA name
	Sharers map[string]string // one of the holders outside DRA that share a device or its function, by [Device.LeaseID]
	Unknown bool              // Others may be incomplete, so exclusive devices are tainted
}

// Decision is whether and how a device is offered.
type Decision struct {
	Device  Device
	Rule    int                 // index of the rule that the device meets; -1 = none
	Sharing journal.SharingMode // sharing of the rule; "" without a rule
	Why     string              // why the device is not offered; "" = it is offered

	Reset    string // key "reset" of the rule: whether the driver is bound again after each pod; "" without a rule
	Withhold bool   // the rule withholds a device that differs from before its last pod, even harmlessly

	rule    *rule         // nil = none
	on      *Decision     // decision about its parent; nil = no parent
	unknown bool          // the device may be allocated outside DRA
	failed  map[int]error // by rule: why its select has no result
}

// Decide returns for each device whether it is offered and, if not, why.
func Decide(devices []Device, rules Rules, s DecideInput) []*Decision {
	decisions := make([]*Decision, len(devices))
	at, on := map[string]*Decision{}, map[string][]string{} // decisions by name; names of children by name of the parent
	for n, d := range devices {
		decisions[n] = rules.choose(s.asOffered(&d), s.Driver)
		if decisions[n].Device = d; d.Unread != nil {
			decisions[n].Why = fmt.Sprintf("it cannot be read: %v", d.Unread)
		}
		at[d.Name], on[d.On] = decisions[n], append(on[d.On], d.Name)
	}
	for _, c := range decisions {
		c.on = at[c.Device.On]
	}
	tied := s.tied(decisions)
	for _, c := range decisions {
		switch held := s.Ours.sharing(c.Device.Name); {
		case c.Why != "":
		case held == journal.Shared && c.Sharing != journal.Shared:
			c.Why = "pods share it, so it is offered as exclusive once no claim holds it"
		case held == journal.Exclusive && c.Sharing != journal.Exclusive:
			c.Why = "it is exclusive to a claim, so it is offered as shared once no claim holds it"
		case held == journal.Exclusive: // the other checks would only find this claim
			c.Why = c.Device.UsedByHost()
		default:
			if c.Why = s.against(c, on[c.Device.hardware()]); c.Why == "" && c.Sharing == journal.Exclusive {
				c.Why, c.unknown = cmp.Or(tied[c.Device.Name], s.Sharers[c.Device.LeaseID()]), s.Unknown
			}
		}
	}
	for _, c := range decisions { // a device and its parent are the same hardware
		for up := c.on; up != nil && c.Why == "" && c.Sharing == journal.Exclusive; up = up.on {
			if up.Why == "" && up.Sharing == journal.Exclusive && s.Ours.sharing(up.Device.Name) == "" {
				up.Why = fmt.Sprintf("%s on it is offered", c.Device.Name)
			}
		}
	}
	s.besides(decisions)
	return decisions
}

// StillOffers reports whether recent decisions are still valid for a device that they offer. It returns false if it
// cannot tell.
func (s DecideInput) StillOffers(decisions []*Decision, name string) bool {
	n := slices.IndexFunc(decisions, func(c *Decision) bool { return c.Device.Name == name })
	if n < 0 || decisions[n].Why != "" {
		return false
	}
	d := &decisions[n].Device
	return s.others(d) == "" && (decisions[n].Sharing != journal.Exclusive || s.tied(decisions)[name] == "" && s.Sharers[d.LeaseID()] == "")
}

// asOffered returns the device for which rules are checked. If a claim holds d exclusively, it is a copy of d with its
// last published attributes, because a device in a pod lacks facts that rules need. Otherwise it is d.
func (s DecideInput) asOffered(d *Device) *Device {
	if s.Ours.sharing(d.Name) != journal.Exclusive {
		return d
	}
	was := *d
	was.Attributes = maps.Clone(d.Attributes)
	for _, name := range AttributeNames() {
		if v, has := s.Ours[d.Name].Attributes[name]; has && name != DeviceID && name != ResourceName {
			was.Attributes[name] = v
		}
	}
	was.IfName, was.Driver = Text(was.Attributes, AttrIfName), Text(was.Attributes, AttrDriver)
	return &was
}

// others returns the holder outside DRA that has a device alone, or "".
func (s DecideInput) others(d *Device) string {
	return cmp.Or(s.Others[d.ID()], s.Others[Text(d.Attributes, PCIBusID)], s.Others[d.VDPA], s.Others[d.PortOf], s.Others[d.RDMAOn])
}

// tied returns the devices that are on a held device or have one on them, each with the reason. It does not read facts
// that rules need, because a device in a pod lacks them.
func (s DecideInput) tied(decisions []*Decision) map[string]string {
	why, held := map[string]string{}, map[string]bool{} // held by [Device.hardware]
	for _, c := range decisions {
		d := &c.Device
		if as := s.Ours.sharing(d.Name); as == journal.Exclusive || as == "" && s.others(d) != "" {
			held[d.hardware()] = true
		}
	}
	tie := func(c *Decision, to *Device, how string) {
		switch by := s.others(to); {
		case !held[to.hardware()] || why[c.Device.Name] != "":
		case by != "":
			why[c.Device.Name] = fmt.Sprintf("%s, %s: %s", to.Name, how, by)
		default:
			why[c.Device.Name] = fmt.Sprintf("a claim holds %s, %s", to.Name, how)
		}
	}
	for _, c := range decisions {
		for up := c.on; up != nil; up = up.on {
			tie(c, &up.Device, "its parent")
			tie(up, &c.Device, "which is on it")
		}
	}
	return why
}

// besides withdraws the ports of functions that are not offered because of another port. The ports of a function have one
// lease, so that one pod has it, or pods share it. A port that claims hold comes first, then one that is offered as shared,
// and then the function's own.
func (s DecideInput) besides(decisions []*Decision) {
	const other = "%s, another port of its function"
	reasons := []string{"", other + ", is offered", other + ", is offered", other + ", is offered as shared", "pods share " + other, "a claim holds " + other}
	rank := func(c *Decision) int { // index of the reason for other ports; 0 = none
		switch held := s.Ours.sharing(c.Device.Name); {
		case held == journal.Exclusive:
			return 5
		case held == journal.Shared:
			return 4
		case c.Why != "":
			return 0
		case c.Sharing == journal.Shared:
			return 3
		case c.Device.PortOf == "":
			return 2
		}
		return 1
	}
	first := map[string]*Decision{} // by function
	for _, c := range decisions {
		if of := first[c.Device.hardware()]; of == nil || rank(c) > rank(of) {
			first[c.Device.hardware()] = c
		}
	}
	for _, c := range decisions {
		of := first[c.Device.hardware()]
		mayBoth := c.Sharing == journal.Shared && rank(of) < 5
		if c.Why == "" && of != c && !mayBoth && s.Ours.sharing(c.Device.Name) != journal.Exclusive {
			c.Why = fmt.Sprintf(reasons[rank(of)], of.Device.Name)
		}
	}
}

// against returns why a device that a rule selects is not offered, or "". on lists the devices on it.
func (s DecideInput) against(c *Decision, on []string) string {
	d := &c.Device
	switch {
	case d.Port != "":
		return d.UsedByHost()
	case d.Serves != "":
		return "its RDMA device serves " + d.Serves + ", and a pod gets it with that"
	case s.others(d) != "":
		return s.others(d)
	case d.RDMAOn != "" && s.Ours.sharing(functionName(d.RDMAOn)) != "":
		return "a claim holds " + functionName(d.RDMAOn) + ", which has its RDMA device"
	case c.Sharing == journal.Shared:
		return s.unshareable(c)
	case isMaster(d.Kind):
		return fmt.Sprintf("a %s cannot be exclusive", d.Kind)
	case d.Uplink != "" && !d.Advertised:
		return d.UsedByHost() + "; to offer it, remove that route, unless the node needs it"
	case d.Uplink != "" && !c.rule.AllowAdvertisedRoute || d.OtherPort != "":
		return d.UsedByHost()
	case d.HostUse != "" && !c.rule.AllowHostUse && !c.rule.names(d):
		return fmt.Sprintf("the host uses it: %s; to offer it anyway, list it in ifNames or pciAddresses, or set allowHostUse", d.HostUse)
	case d.Unusable != "":
		return d.Unusable
	case len(on) > 0 && (isNIC(d.Kind) || d.moved() || d.Verbs && d.IfName == ""):
		return fmt.Sprintf("it has %s on it, which would lose their parent", count(on))
	case sysfs.OnUIO(d.Driver): // DMA without an IOMMU
		return fmt.Sprintf("it is on %s, whose users can write to all memory, so no container gets /dev/uioN: bind it to vfio-pci", d.Driver)
	case c.rule.ResourceName != "" && d.ID() == "":
		return "the rule sets resourceName, but the device has neither a PCI address nor an auxiliary name for Multus"
	}
	return ""
}

// unshareable is against for a rule that shares the device.
func (s DecideInput) unshareable(c *Decision) string {
	d := &c.Device
	switch {
	case !isNIC(d.Kind) && !isMaster(d.Kind):
		return fmt.Sprintf("a %s cannot be shared", d.Kind)
	case d.IfName == "":
		return "it has no interface that could be shared"
	case d.Uplink != "" && !c.rule.names(d):
		return fmt.Sprintf("the host needs it: %s; to share it, list it in ifNames or pciAddresses", d.Uplink)
	case !s.Sharing:
		return "the API server cannot share devices, which needs Kubernetes 1.36"
	}
	return ""
}

func (r Rules) choose(d *Device, driver string) *Decision {
	c := &Decision{Rule: -1, Why: "no rule selects it", failed: map[int]error{}}
	for n := range r {
		rule := &r[n]
		met, err := rule.meets(d, driver)
		if err != nil {
			c.Why, c.failed[n] = fmt.Sprintf("no rule selects it; devices[%d].%v", n, err), err
		}
		if met {
			return &Decision{Rule: n, Sharing: rule.Sharing, Reset: cmp.Or(rule.Reset, "auto"), Withhold: rule.OnDifference == "withhold", rule: rule, failed: c.failed}
		}
	}
	return c
}

// meets reports whether a device meets the rule. It returns an error if the rule's expression has no result, for
// example because the device lacks an attribute that the expression uses.
func (r *rule) meets(d *Device, driver string) (bool, error) {
	for _, m := range matchers {
		values := m.values(&r.Rule)
		if len(values) > 0 && !slices.ContainsFunc(m.of(d), func(of string) bool { return slices.Contains(values, of) }) {
			return false, nil
		}
	}
	if r.selects == nil || r.elsewhere {
		return !r.elsewhere, nil
	}
	shared := r.Sharing == journal.Shared
	met, _, err := r.selects.DeviceMatches(context.Background(), cel.Device{
		Driver: driver, AllowMultipleAllocations: &shared, Attributes: d.Attributes,
	})
	if err != nil {
		return false, fmt.Errorf("select: %w", err)
	}
	return met, nil
}

// names reports whether the rule has the device's own name or address.
func (r *rule) names(d *Device) bool {
	return slices.ContainsFunc(append([]string{d.IfName}, d.Also...), func(name string) bool { return slices.Contains(r.IfNames, name) }) || slices.Contains(r.PCIAddresses, d.PCI)
}
