package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/link"
)

// Idle explains, in their order, the rules that are no device's first, by what was decided and the host's interfaces.
func (r Rules) Idle(decisions []Decision, links []link.InterfaceRecord) (list []state.Idle) {
	if r.absent {
		return []state.Idle{{Rule: "devices", Why: "the file has no rules; write some, such as devices: [{pfNames: [ens1f0np0], as: exclusive}], or devices: [] if none is to be offered"}}
	}
	used := map[int]bool{}
	for n := range decisions {
		used[decisions[n].Rule] = true
	}
	has := func(what func(*Device) string) (all []string) {
		for n := range decisions {
			all = append(all, what(&decisions[n].Device))
		}
		return slices.DeleteFunc(all, func(s string) bool { return s == "" })
	}
	interfaces := has(func(d *Device) string { return d.IfName })
	onNothing := func(name string) string {
		if slices.Contains(interfaces, name) {
			return "no VF, SF or vDPA device is on " + name
		}
		return noDevice(name, links)
	}
	keys := []idleKey{
		{"pciAddresses", func(r *Rule) []string { return r.PCIAddresses }, has(func(d *Device) string { return d.PCI }), func(a string) string { return a + " is not on this node" }},
		{"ifNames", func(r *Rule) []string { return r.IfNames }, interfaces, func(name string) string { return noDevice(name, links) }},
		{"pfNames", func(r *Rule) []string { return r.PFNames }, has(func(d *Device) string { return d.PFName }), onNothing},
		{"drivers", func(r *Rule) []string { return r.Drivers }, has(func(d *Device) string { return d.Driver }), func(name string) string { return "no device has the driver " + name }},
	}
	for n := range r.list {
		if !used[n] {
			list = append(list, explain(n, &r.list[n].Rule, keys, failure(decisions, n)))
		}
	}
	return list
}

// An idleKey is a key of rules: its values, those that the node's devices have, and what one
// is that none of them has.
type idleKey struct {
	name   string
	values func(*Rule) []string
	known  []string
	not    func(value string) string
}

// failure is why the select of a rule has no result for any device that comes to it, as where it asks
// for an attribute that none has; "" = it has one.
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

func explain(n int, r *Rule, keys []idleKey, failure string) (idle state.Idle) {
	var names, why []string
	for _, key := range keys {
		values := key.values(r)
		if len(values) > 0 {
			names = append(names, key.name+": "+strings.Join(values, ", "))
		}
		for _, value := range values {
			if slices.Contains(key.known, value) {
				continue
			}
			text := key.not(value)
			if near := config.Nearest(value, key.known); near != "" {
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

// noDevice says what an interface is instead of a device's.
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
