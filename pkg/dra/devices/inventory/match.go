package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/dynamic-resource-allocation/cel"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/link"
)

// choose finds the first rule that a device meets.
func (r Rules) choose(d *Device, driver string) Decision {
	c := Decision{Rule: -1, Why: "no rule names it"}
	for n := range r.list {
		met, err := r.list[n].meets(d, driver)
		if err != nil {
			c.Why = fmt.Sprintf("no rule names it; devices[%d].%v", n, err)
			if c.failed == nil {
				c.failed = map[int]error{}
			}
			c.failed[n] = err
		}
		if met {
			return Decision{Rule: n, As: r.list[n].As, rule: &r.list[n], failed: c.failed}
		}
	}
	return c
}

// matchers are the keys of rules whose values are compared with one of a device.
var matchers = []struct {
	key    string
	values func(*Rule) []string
	of     func(*Device) string
}{
	{"pciAddresses", func(r *Rule) []string { return r.PCIAddresses }, func(d *Device) string { return d.PCI }},
	{"ifNames", func(r *Rule) []string { return r.IfNames }, func(d *Device) string { return d.IfName }},
	{"pfNames", func(r *Rule) []string { return r.PFNames }, func(d *Device) string { return d.PFName }},
	{"drivers", func(r *Rule) []string { return r.Drivers }, func(d *Device) string { return d.Driver }},
}

// meets reports whether a device meets the rule. An error is that of the rule's expression, for example
// because it asks for an attribute that the device does not have.
func (r *rule) meets(d *Device, driver string) (bool, error) {
	for _, m := range matchers {
		if values := m.values(&r.Rule); len(values) > 0 && !slices.Contains(values, m.of(d)) {
			return false, nil
		}
	}
	if r.selects == nil {
		return true, nil
	}
	shared := r.As == Shared
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
	return slices.Contains(r.IfNames, d.IfName) || slices.Contains(r.PCIAddresses, d.PCI)
}

// Idle returns the rules that no device meets, in their order, each with the reason.
func (r Rules) Idle(decisions []Decision, links []link.InterfaceRecord) (list []state.Idle) {
	if r.absent {
		return []state.Idle{{Rule: "devices", Why: "the file has no rules; write some, such as devices: [{pfNames: [ens1f0np0], as: exclusive}], or devices: [] if none is to be offered"}}
	}
	used, known := map[int]bool{}, map[string][]string{} // by index; what devices have, by key
	for n := range decisions {
		used[decisions[n].Rule] = true
		for _, m := range matchers {
			if value := m.of(&decisions[n].Device); value != "" {
				known[m.key] = append(known[m.key], value)
			}
		}
	}
	for n := range r.list {
		if !used[n] {
			list = append(list, explain(n, &r.list[n].Rule, known, links, failure(decisions, n)))
		}
	}
	return list
}

// failure returns why the expression of a rule has no result for any device that reaches the rule; "" = it
// has one.
func failure(decisions []Decision, rule int) (why string) {
	for n := range decisions {
		d := &decisions[n]
		if err := d.failed[rule]; err != nil {
			why = err.Error()
		} else if d.Rule < 0 || d.Rule > rule {
			return ""
		}
	}
	return why
}

func explain(n int, r *Rule, known map[string][]string, links []link.InterfaceRecord, failure string) (idle state.Idle) {
	var names, why []string
	for _, m := range matchers {
		values := m.values(r)
		if len(values) > 0 {
			names = append(names, m.key+": "+strings.Join(values, ", "))
		}
		for _, value := range values {
			if slices.Contains(known[m.key], value) {
				continue
			}
			text := noDevice(value, links)
			switch {
			case m.key == "pciAddresses":
				text = value + " is not on this node"
			case m.key == "drivers":
				text = "no device has the driver " + value
			case m.key == "pfNames" && slices.Contains(known["ifNames"], value):
				text = "no VF, SF or vDPA device is on " + value
			}
			if near := config.Nearest(value, known[m.key]); near != "" {
				text += "; the nearest is " + near
				idle.Nearest = cmp.Or(idle.Nearest, near)
			}
			why = append(why, text)
		}
	}
	if r.Select != "" {
		names = append(names, "select")
	}
	idle.Rule = fmt.Sprintf("devices[%d] (%s)", n, strings.Join(names, "; "))
	idle.Why = cmp.Or(strings.Join(why, "; "), failure, "none meets all of its keys, or another rule is before it")
	return idle
}

// noDevice returns what an interface of no device is.
func noDevice(name string, links []link.InterfaceRecord) string {
	n := slices.IndexFunc(links, func(l link.InterfaceRecord) bool { return l.Name == name })
	switch {
	case n < 0:
		return "there is no interface " + name
	case link.Represents(links[n].PortName):
		return name + " is a representor"
	case links[n].Info.Kind != "":
		return name + " is a " + links[n].Info.Kind
	}
	return name + " is the interface of no device"
}
