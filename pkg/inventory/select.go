package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/dynamic-resource-allocation/cel"
)

// compile takes what a DeviceClass's selector may say.
func compile(expression string) (*cel.CompilationResult, error) {
	program := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, cel.Options{})
	if program.Error != nil {
		return nil, errors.New(program.Error.Detail)
	}
	return &program, nil
}

// meets says whether the device is one of the rule's; an error is that of its
// expression, for example because it asks for an attribute that the device does not have.
func (r *rule) meets(d *Device, driver string) (bool, error) {
	address := ""
	if d.PCI != nil {
		address = d.PCI.String()
	}
	for _, key := range []struct {
		among []string
		value string
	}{{r.PCIAddresses, address}, {r.PFNames, d.PFName}, {r.IfNames, d.IfName}, {r.Drivers, d.Driver}} {
		if len(key.among) > 0 && !slices.Contains(key.among, key.value) {
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

// names says that the rule gives the device's own name or address.
func (r *rule) names(d *Device) bool {
	return slices.Contains(r.IfNames, d.IfName) || d.PCI != nil && slices.Contains(r.PCIAddresses, d.PCI.String())
}
