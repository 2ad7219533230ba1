package cniconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
)

// What parameters must call themselves: the Device Configuration API uses both groups
// and both kinds.
var (
	apiVersions = []string{"cni.networking.x-k8s.io/v1alpha1", "cni.dra.networking.x-k8s.io/v1alpha1"}
	kinds       = []string{"CNIConfig", "CNI"}
)

// DriverVFIO is the one value of the key driver.
const DriverVFIO = "vfio-pci"

// parameters are the opaque parameters of a class, of a claim, or of both together.
type parameters struct {
	ifName string          // "" = not given
	config json.RawMessage // an object; nil = not given

	// Extensions of the Device Configuration API. Of a class:
	late        bool     // attach: Late
	claimMaySet []string // capability arguments
	device      json.RawMessage
	driver      string // that the device is bound to; "" = as it is
	// Of a claim: the capability arguments, by their names.
	values map[string]json.RawMessage
}

// parameters joins those of a class and of a claim that are for our driver.
func (p Policy) parameters(configs []resourceapi.DeviceAllocationConfiguration) (parameters, *Refusal) {
	class, err := p.from(resourceapi.AllocationConfigSourceClass, configs)
	if err != nil {
		return parameters{}, err
	}
	claim, err := p.from(resourceapi.AllocationConfigSourceClaim, configs)
	if err != nil {
		return parameters{}, err
	}
	switch {
	case class.config != nil && claim.config != nil:
		return parameters{}, refuse("", "the DeviceClass gives a config and the claim another", "leave config out of the claim: ifName alone goes over the class's")
	case class.config == nil && claim.config == nil:
		return parameters{}, refuse("", fmt.Sprintf("there is no config for driver %s", p.Driver),
			"use a DeviceClass that gives one, or one in the claim where the node allows that")
	case claim.config == nil:
		claim.config = class.config
	}
	if claim.ifName == "" {
		claim.ifName = class.ifName
	}
	claim.late, claim.device, claim.driver = class.late, class.device, class.driver
	return claim, class.lets(claim.values)
}

// from gives what one source has for our driver; none is the zero value.
func (p Policy) from(source resourceapi.AllocationConfigSource, configs []resourceapi.DeviceAllocationConfiguration) (all parameters, err *Refusal) {
	found := 0
	for _, c := range configs {
		switch {
		case !p.isOurs(c):
			continue
		case c.Source != resourceapi.AllocationConfigSourceClass && c.Source != resourceapi.AllocationConfigSourceClaim:
			return all, refuse("", fmt.Sprintf("a config is from %q, not from a class or a claim", c.Source), "update the driver: this one does not know that source")
		case c.Source != source:
			continue
		}
		if found++; found > 1 {
			return all, refuse("", fmt.Sprintf("more than one config of driver %s (%s)", p.Driver, source), "give each request one, by its name in requests")
		}
		var wrong []*Refusal
		if all, wrong = p.decode(c.Opaque.Parameters.Raw, source); wrong != nil {
			err = first(wrong)
			err.Rule = fmt.Sprintf("parameters (%s): %s", source, err.Rule)
			return parameters{}, err
		}
	}
	return all, nil
}

// decode reads parameters strictly: what is not understood is not run. It gives all that is
// wrong.
func (p Policy) decode(raw []byte, source resourceapi.AllocationConfigSource) (out parameters, wrong []*Refusal) {
	s, err := scan(raw)
	if err != nil {
		return parameters{}, []*Refusal{err}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return parameters{}, []*Refusal{refuse("", err.Error(), "give a JSON object")}
	}
	wrong = slices.Concat(s.wrong, checkKeys(fields, source), oneOf(fields, "apiVersion", apiVersions), oneOf(fields, "kind", kinds))
	if v, ok := fields["ifName"]; ok && json.Unmarshal(v, &out.ifName) != nil {
		wrong = append(wrong, refuse("ifName", "ifName is not a string", `write it as "net1"`))
	}
	switch v := fields["config"]; {
	case v == nil || string(v) == "null":
	case v[0] != '{':
		wrong = append(wrong, refuse("config", "config is not an object", "give the CNI configuration itself, not as a string"))
	default:
		out.config = v
	}
	wrong = append(wrong, out.extend(fields, source)...)
	switch {
	case wrong == nil && out.ifName == "" && out.config == nil && out.values == nil:
		wrong = append(wrong, refuse("", "neither ifName nor config", "give one of them, or leave the parameters out"))
	case out.config != nil && source == resourceapi.AllocationConfigSourceClaim:
		wrong = append(wrong, p.allow(s.types)...)
	}
	return out, wrong
}

// checkKeys refuses keys that are not known of that source.
func checkKeys(fields map[string]json.RawMessage, source resourceapi.AllocationConfigSource) (wrong []*Refusal) {
	known := []string{"apiVersion", "kind", "ifName", "config"}
	if source == resourceapi.AllocationConfigSourceClass {
		known = append(known, "attach", "claimMaySet", "device", "driver")
	} else {
		known = append(known, capabilityNames()...)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, key) {
			wrong = append(wrong, refuse(key, fmt.Sprintf("unknown key %s", quote(key)),
				fmt.Sprintf("only %s are known here, in this spelling", strings.Join(known, ", "))))
		}
	}
	return wrong
}

// extend reads the keys that are ours.
func (p *parameters) extend(fields map[string]json.RawMessage, source resourceapi.AllocationConfigSource) (wrong []*Refusal) {
	if source != resourceapi.AllocationConfigSourceClass {
		return p.take(fields)
	}
	p.device = fields["device"]
	if v, ok := fields["attach"]; ok {
		if string(v) != `"Late"` {
			wrong = append(wrong, refuse("attach", fmt.Sprintf("attach %s is not known", quote(strings.Trim(string(v), `"`))), `write "Late", or leave it out`))
		}
		p.late = true
	}
	if v, ok := fields["driver"]; ok {
		if string(v) != `"`+DriverVFIO+`"` {
			wrong = append(wrong, refuse("driver", fmt.Sprintf("driver %s is not known", quote(strings.Trim(string(v), `"`))), fmt.Sprintf("write %q, or leave it out", DriverVFIO)))
		}
		p.driver = DriverVFIO
	}
	if v, ok := fields["claimMaySet"]; ok {
		if json.Unmarshal(v, &p.claimMaySet) != nil {
			wrong = append(wrong, refuse("claimMaySet", "claimMaySet is not a list of strings", `write it as ["ips", "mac"]`))
		}
		for n, key := range p.claimMaySet {
			if !slices.Contains(capabilityNames(), key) {
				wrong = append(wrong, refuse(fmt.Sprintf("claimMaySet[%d]", n), fmt.Sprintf("claimMaySet: %s is not known", quote(key)), "use "+strings.Join(capabilityNames(), ", ")))
			}
		}
	}
	return wrong
}

// allow refuses plugin types that the configuration of a claim must not name.
func (p Policy) allow(types []named) (wrong []*Refusal) {
	const remedy = "have the DeviceClass give the config and the claim the ifName alone, or "
	if len(p.AllowClaimTypes) == 0 {
		return []*Refusal{refuse("config", "config: a CNI configuration runs as root of the node, and here claims may give none",
			remedy+"have the node's administrator start the driver with --allow-claim-config=TYPE,TYPE")}
	}
	for _, t := range types {
		switch {
		case !t.isText:
			wrong = append(wrong, refuse(t.path, t.path+" is not a string, so what it runs is unknown", `make each "type" of a config in a claim a string`))
		case !slices.Contains(p.AllowClaimTypes, t.value):
			wrong = append(wrong, refuse(t.path, fmt.Sprintf("%s: %s runs as root of the node, and claims may not use it", t.path, quote(t.value)),
				fmt.Sprintf("%shave the node's administrator add it to --allow-claim-config (now %s)", remedy, strings.Join(p.AllowClaimTypes, ","))))
		}
	}
	return wrong
}

func oneOf(fields map[string]json.RawMessage, key string, want []string) []*Refusal {
	var have string
	if err := json.Unmarshal(fields[key], &have); err != nil || !slices.Contains(want, have) {
		value := "is missing"
		if v, ok := fields[key]; ok {
			value = quote(strings.Trim(string(v), `"`)) + " is not known"
		}
		return []*Refusal{refuse(key, fmt.Sprintf("%s %s", key, value), fmt.Sprintf("use %q or %q", want[0], want[1]))}
	}
	return nil
}
