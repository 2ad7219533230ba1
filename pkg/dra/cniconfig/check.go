package cniconfig

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"devinfo-cni.io/pkg/core/state"
)

// Checked is the result of checking a DeviceClass or a claim before the allocation.
type Checked struct {
	Ours  bool       // whether any part concerns the driver
	Wrong []*Refusal // all mistakes that Resolve would refuse
}

// tooMany refuses a list that is too long for the API server, and reports whether it is.
func (c *Checked) tooMany(key string, n, most int) bool {
	if n <= most {
		return false
	}
	c.add(key, refuse("", fmt.Sprintf("%s has %d entries", key, n), fmt.Sprintf("make it at most %d", most)))
	return true
}

// add adds the mistakes at path. It ignores nil.
func (c *Checked) add(path string, wrong ...*Refusal) {
	c.Ours = true
	for _, r := range wrong {
		if r != nil {
			r.At = strings.TrimSuffix(path+"."+r.At, ".")
			c.Wrong = append(c.Wrong, r)
		}
	}
}

// CheckClass checks the spec of a DeviceClass. Paths of mistakes begin below the spec.
func (p Policy) CheckClass(class *resourceapi.DeviceClassSpec) (all Checked) {
	if all.tooMany("config", len(class.Config), resourceapi.DeviceConfigMaxSize) {
		return all
	}
	found := false
	for n, c := range class.Config {
		path := fmt.Sprintf("config[%d]", n)
		ours := p.checkConfig(&all, path, c.DeviceConfiguration, fromClass)
		if ours && found {
			all.add(path, refuse("", "more than one config of driver "+p.Driver, "merge them into one"))
		}
		found = found || ours
	}
	all.Ours = all.Ours || slices.ContainsFunc(class.Selectors, func(s resourceapi.DeviceSelector) bool {
		return s.CEL != nil && strings.Contains(s.CEL.Expression, p.Driver)
	})
	return all
}

// checkConfig checks one config, and reports whether it belongs to the driver.
func (p Policy) checkConfig(all *Checked, path string, c resourceapi.DeviceConfiguration, source resourceapi.AllocationConfigSource) bool {
	if c.Opaque == nil {
		return false
	}
	if c.Opaque.Driver != p.Driver {
		var is struct{ APIVersion, Kind string }
		_ = json.Unmarshal(c.Opaque.Parameters.Raw, &is) // parameters of another driver have any content
		if slices.Contains(apiVersions, is.APIVersion) && slices.Contains(kinds, is.Kind) {
			all.add(path, refuse("opaque.driver", fmt.Sprintf("driver %s is not %s, but these are parameters of %[2]s", quote(c.Opaque.Driver), p.Driver),
				fmt.Sprintf("write %q", p.Driver)))
		}
		return false
	}
	_, wrong := p.decode(c.Opaque.Parameters.Raw, source)
	all.add(path+".opaque.parameters", wrong...)
	return true
}

// CheckClaim checks the spec of a claim. Paths of mistakes begin below its devices. If AllowClaimTypes is nil, all
// plugin types are allowed, because the policy of the nodes is unknown. If a request's class is not in classes, the
// request is checked only if the claim has a config of the driver for it. The settings of the class are then unknown.
func (p Policy) CheckClaim(devices *resourceapi.DeviceClaim, classes map[string]*resourceapi.DeviceClassSpec) (all Checked) {
	if all.tooMany("config", len(devices.Config), resourceapi.DeviceConfigMaxSize) || all.tooMany("requests", len(devices.Requests), resourceapi.DeviceRequestsMaxSize) {
		return all
	}
	p.allowAll = p.AllowClaimTypes == nil
	d := draft{Policy: p, requests: devices.Requests, classes: classes}
	numbers := numbering{}
	for n, c := range devices.Config {
		path := fmt.Sprintf("config[%d]", n)
		if p.checkConfig(&all, path, c.DeviceConfiguration, fromClaim) {
			all.add(path, checkRefs(devices.Requests, c.Requests)...)
			d.configs = append(d.configs, resourceapi.DeviceAllocationConfiguration{Source: fromClaim, Requests: c.Requests, DeviceConfiguration: c.DeviceConfiguration})
		}
	}
	var networks []state.Attachment
	for n, r := range devices.Requests {
		path := fmt.Sprintf("requests[%d]", n)
		if r.Exactly != nil {
			networks = append(networks, d.request(&all, path+".exactly", r.Name, r.Exactly.DeviceClassName, numbers)...)
		}
		for m, sub := range r.FirstAvailable {
			counted := numbers
			if m > 0 { // the scheduler allocates only one alternative
				counted = numbering{}
			}
			found := d.request(&all, fmt.Sprintf("%s.firstAvailable[%d]", path, m), resourceclaim.CreateSubRequestRef(r.Name, sub.Name), sub.DeviceClassName, counted)
			if m == 0 {
				networks = append(networks, found...)
			}
		}
	}
	if same := Distinct(networks, nil); same != nil {
		index := slices.IndexFunc(devices.Requests, func(r resourceapi.DeviceRequest) bool { return r.Name == resourceclaim.BaseRequestRef(same.Request) })
		all.add(fmt.Sprintf("requests[%d]", index), same)
	}
	return all
}

func checkRefs(requests []resourceapi.DeviceRequest, refs []string) (wrong refusals) {
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
			wrong.add(at, fmt.Sprintf("%s: the claim has no request %s, so the config is never used", at, quote(ref)), "use one of "+strings.Join(known, ", "))
		}
	}
	return wrong
}

// draft is a claim before its allocation.
type draft struct {
	Policy
	requests []resourceapi.DeviceRequest
	configs  []resourceapi.DeviceAllocationConfiguration // the claim's configs for the driver
	classes  map[string]*resourceapi.DeviceClassSpec
}

// apiClass is the class of the Device Configuration API. Its devices are no hardware, so that they need a configuration.
const apiClass = "cni.networking.x-k8s.io"

// request checks a request, or an alternative of a request, as if a device were allocated to it. It returns the
// network if the class is known and nothing is wrong.
func (d *draft) request(all *Checked, path, ref, className string, numbers numbering) []state.Attachment {
	result := resourceapi.DeviceRequestAllocationResult{Request: ref, Driver: d.Driver}
	configs := resourceclaim.ConfigForResult(d.configs, result)
	class := d.classes[className]
	of := Checked{Ours: className == apiClass}
	if class != nil {
		of = d.CheckClass(class)
	} else if of.Ours {
		class = &resourceapi.DeviceClassSpec{}
	}
	named := slices.ContainsFunc(configs, func(c resourceapi.DeviceAllocationConfiguration) bool {
		return len(c.Requests) > 0 || class == nil && len(d.requests) == 1
	})
	if !of.Ours && !named {
		return nil
	}
	all.Ours = true
	reported := slices.Concat(all.Wrong, of.Wrong)
	add := func(wrong ...*Refusal) {
		for _, r := range wrong {
			same := func(k *Refusal) bool { return k.Rule == r.Rule || strings.HasPrefix(r.Rule, noConfig) } // or a consequence
			if r == nil || strings.HasPrefix(r.Rule, ofParameters) || strings.HasSuffix(r.Rule, "("+string(fromClass)+")") {
				continue // checkConfig or CheckClass has reported it
			}
			if !slices.ContainsFunc(reported, same) {
				all.add(path, r)
			}
		}
	}
	several, wrong := checkRequest(d.requests, result)
	add(wrong)
	if !of.Ours {
		_, _, refused := d.both(configs)
		add(refused...)
		return nil
	}
	for _, c := range class.Config {
		configs = append(configs, resourceapi.DeviceAllocationConfiguration{Source: fromClass, DeviceConfiguration: c.DeviceConfiguration})
	}
	if className != apiClass && !slices.ContainsFunc(configs, d.isOurs) { // whether it needs a configuration depends on the device
		return nil
	}
	at := state.Attachment{Request: ref}
	_, refused := d.configure(&at, configs, several, numbers)
	for _, r := range refused {
		r.At = "" // the mistake may be in any of configs
	}
	if add(refused...); refused != nil || wrong != nil {
		return nil
	}
	return []state.Attachment{at}
}
