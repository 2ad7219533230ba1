package cniconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// Checked is what can be said of a DeviceClass or a claim before anything is allocated.
type Checked struct {
	Ours  bool       // something in it is for the driver
	Wrong []*Refusal // all that Resolve would refuse
}

// tooMany refuses a list that the API server would not take, and spares the work.
func (c *Checked) tooMany(key string, n, most int) bool {
	if n > most {
		c.add(key, refuse("", fmt.Sprintf("%s has %d entries", key, n), fmt.Sprintf("make it at most %d", most)))
	}
	return n > most
}

// add takes in what is wrong with what is at path.
func (c *Checked) add(path string, wrong ...*Refusal) {
	c.Ours = true
	for _, r := range wrong {
		if r != nil {
			r.At = strings.TrimSuffix(path+"."+r.At, ".")
			c.Wrong = append(c.Wrong, r)
		}
	}
}

// CheckClass checks the spec of a DeviceClass, which the keys of what is wrong are below.
func (p Policy) CheckClass(class *resourceapi.DeviceClassSpec) (all Checked) {
	if all.tooMany("config", len(class.Config), resourceapi.DeviceConfigMaxSize) {
		return all
	}
	found := 0
	for n, c := range class.Config {
		path := fmt.Sprintf("config[%d]", n)
		if !p.checkConfig(&all, path, c.DeviceConfiguration, resourceapi.AllocationConfigSourceClass) {
			continue
		}
		if found++; found > 1 {
			all.add(path, refuse("", "there is more than one config of driver "+p.Driver, "make one of them"))
		}
	}
	all.Ours = all.Ours || p.selectedBy(class)
	return all
}

// selectedBy says that a class selects devices by the driver's name.
func (p Policy) selectedBy(class *resourceapi.DeviceClassSpec) bool {
	return slices.ContainsFunc(class.Selectors, func(s resourceapi.DeviceSelector) bool {
		return s.CEL != nil && strings.Contains(s.CEL.Expression, p.Driver)
	})
}

// checkConfig checks one config, and reports whether it is the driver's.
func (p Policy) checkConfig(all *Checked, path string, c resourceapi.DeviceConfiguration, source resourceapi.AllocationConfigSource) bool {
	if c.Opaque == nil {
		return false
	}
	if c.Opaque.Driver != p.Driver {
		if isOurKind(c.Opaque.Parameters.Raw) {
			all.add(path, refuse("opaque.driver", fmt.Sprintf("driver %s is not %s, whose parameters these are", quote(c.Opaque.Driver), p.Driver),
				fmt.Sprintf("write %q", p.Driver)))
		}
		return false
	}
	all.add(path+".opaque.parameters", p.check(c.Opaque.Parameters.Raw, source)...)
	return true
}

// isOurKind says that parameters call themselves ours.
func isOurKind(raw []byte) bool {
	var fields map[string]json.RawMessage
	return json.Unmarshal(raw, &fields) == nil && oneOf(fields, "apiVersion", apiVersions) == nil && oneOf(fields, "kind", kinds) == nil
}

// check checks parameters by themselves. Where AllowClaimTypes is nil, what the nodes allow
// is unknown, and all is taken for allowed.
func (p Policy) check(raw []byte, source resourceapi.AllocationConfigSource) []*Refusal {
	if p.AllowClaimTypes == nil {
		p.AllowClaimTypes = typesIn(raw)
	}
	params, wrong := p.decode(raw, source)
	if params.ifName != "" {
		if refusal := checkIfName(numbered(params.ifName, 0)); refusal != nil {
			wrong = append(wrong, refusal)
		}
	}
	if params.config != nil {
		_, more := list(params.config)
		wrong = append(wrong, more...)
	}
	return wrong
}

// typesIn are all types in parameters: what a trusting node allows.
func typesIn(raw []byte) []string {
	list := []string{""} // an empty list allows nothing
	if s, err := scan(raw); err == nil {
		for _, t := range s.types {
			list = append(list, t.value)
		}
	}
	return list
}

// CheckClaim checks the devices of a claim's spec, which the keys of what is wrong are
// below. Of requests whose class is not in classes only that is checked which no class can
// change, and only if the claim itself has a config of the driver for them.
func (p Policy) CheckClaim(devices *resourceapi.DeviceClaim, classes map[string]*resourceapi.DeviceClassSpec) (all Checked) {
	if all.tooMany("config", len(devices.Config), resourceapi.DeviceConfigMaxSize) || all.tooMany("requests", len(devices.Requests), resourceapi.DeviceRequestsMaxSize) {
		return all
	}
	d := draft{policy: p, classes: classes}
	d.claim.Spec.Devices = *devices
	var types []string
	for n, c := range devices.Config {
		path := fmt.Sprintf("config[%d]", n)
		if !p.checkConfig(&all, path, c.DeviceConfiguration, resourceapi.AllocationConfigSourceClaim) {
			continue
		}
		types = append(types, typesIn(c.Opaque.Parameters.Raw)...)
		all.add(path, checkRefs(devices.Requests, c.Requests)...)
		d.configs = append(d.configs, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClaim, Requests: c.Requests, DeviceConfiguration: c.DeviceConfiguration,
		})
	}
	if p.AllowClaimTypes == nil {
		d.policy.AllowClaimTypes = types
	}
	d.clean = all.Wrong == nil
	var networks []Network
	for n, r := range devices.Requests {
		path := fmt.Sprintf("requests[%d]", n)
		if r.Exactly != nil {
			networks = append(networks, d.request(&all, path+".exactly", r.Name, r.Exactly.DeviceClassName)...)
		}
		for m, sub := range r.FirstAvailable {
			found := d.request(&all, fmt.Sprintf("%s.firstAvailable[%d]", path, m), resourceclaim.CreateSubRequestRef(r.Name, sub.Name), sub.DeviceClassName)
			if m == 0 { // one of them is allocated
				networks = append(networks, found...)
			}
		}
	}
	if same, is := errors.AsType[*Refusal](Distinct(networks, nil)); is {
		all.add(fmt.Sprintf("requests[%d]", d.index(same.Request)), same)
	}
	return all
}

// index is that of the request that an allocation would name so.
func (d *draft) index(ref string) int {
	return slices.IndexFunc(d.claim.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool { return r.Name == resourceclaim.BaseRequestRef(ref) })
}

// checkRefs refuses the names of requests that are not there.
func checkRefs(requests []resourceapi.DeviceRequest, refs []string) (wrong []*Refusal) {
	var known []string
	for _, r := range requests {
		known = append(known, r.Name)
		for _, sub := range r.FirstAvailable {
			known = append(known, resourceclaim.CreateSubRequestRef(r.Name, sub.Name))
		}
	}
	for n, ref := range refs {
		if !slices.Contains(known, ref) {
			at := fmt.Sprintf("requests[%d]", n)
			wrong = append(wrong, refuse(at, fmt.Sprintf("%s %s is no request of the claim, so the config is for none", at, quote(ref)), "name one of "+strings.Join(known, ", ")))
		}
	}
	return wrong
}

// draft is a claim that is not allocated yet.
type draft struct {
	policy  Policy
	claim   resourceapi.ResourceClaim
	configs []resourceapi.DeviceAllocationConfiguration // of the claim, the driver's
	classes map[string]*resourceapi.DeviceClassSpec
	clean   bool // nothing is wrong with configs
}

// request checks a request, or an alternative of one, as if a device were allocated to it.
// It gives the network, if that is all known and right.
func (d *draft) request(all *Checked, path, ref, className string) []Network {
	result := resourceapi.DeviceRequestAllocationResult{Request: ref, Driver: d.policy.Driver}
	configs := resourceclaim.ConfigForResult(d.configs, result)
	class := d.classes[className]
	var of Checked
	if class != nil {
		of = d.policy.CheckClass(class)
	}
	named := slices.ContainsFunc(configs, func(c resourceapi.DeviceAllocationConfiguration) bool {
		return len(c.Requests) > 0 || class == nil && len(d.claim.Spec.Devices.Requests) == 1
	})
	if !of.Ours && !named {
		return nil
	}
	all.Ours = true
	if of.Ours && of.Wrong == nil {
		for _, c := range class.Config {
			configs = append(configs, resourceapi.DeviceAllocationConfiguration{Source: resourceapi.AllocationConfigSourceClass, DeviceConfiguration: c.DeviceConfiguration})
		}
	}
	bare := of.Ours && !slices.ContainsFunc(configs, d.policy.isOurs) // maybe: the device decides
	d.claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}}}
	several, wrong := checkRequest(&d.claim, result)
	all.add(path, wrong)
	switch {
	case bare || !d.clean || of.Wrong != nil || wrong != nil:
		return nil
	case !of.Ours:
		_, refusal := d.policy.from(resourceapi.AllocationConfigSourceClaim, configs)
		all.add(path, refusal)
		return nil
	}
	n, refusal := d.policy.attach(configs, result, 0, several)
	if refusal != nil {
		refusal.At = "" // of no one config
		all.add(path, refusal)
		return nil
	}
	return []Network{n}
}
