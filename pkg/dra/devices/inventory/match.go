package inventory

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/dynamic-resource-allocation/cel"
)

func (r Rules) choose(d *Device, driver string) Decision {
	c := Decision{Rule: -1, Why: "no rule selects it"}
	for n := range r.list {
		if r.list[n].elsewhere {
			continue
		}
		met, err := r.list[n].meets(d, driver)
		if err != nil {
			c.Why = fmt.Sprintf("no rule selects it; devices[%d].%v", n, err)
			if c.failed == nil {
				c.failed = map[int]error{}
			}
			c.failed[n] = err
		}
		if met {
			return Decision{Rule: n, Sharing: r.list[n].Sharing, rule: &r.list[n], failed: c.failed}
		}
	}
	return c
}

// matchers are the keys of rules that list values of a device.
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

// meets reports whether a device meets the rule. It returns an error if the rule's expression has no result, for
// example because the device lacks an attribute that the expression uses.
func (r *rule) meets(d *Device, driver string) (bool, error) {
	for _, m := range matchers {
		if values := m.values(&r.Rule); len(values) > 0 && !slices.Contains(values, m.of(d)) {
			return false, nil
		}
	}
	if r.selects == nil {
		return true, nil
	}
	shared := r.Sharing == Shared
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
