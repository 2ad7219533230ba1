package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/dra/cniconfig"
)

// draDriver is the driver whose parameters are checked.
const draDriver = "cni.dra.networking.x-k8s.io"

// The kinds of resource.k8s.io that have parameters.
const (
	deviceClass   = "DeviceClass"
	claimKind     = "ResourceClaim"
	claimTemplate = "ResourceClaimTemplate"
)

// Classes are DeviceClasses by their names.
type Classes map[string]*resourceapi.DeviceClassSpec

// ClassesIn are those in a text that can be read.
func ClassesIn(text []byte) Classes {
	all := Classes{}
	for _, part := range parts(text) {
		var class struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     resourceapi.DeviceClassSpec
		}
		if part.err == nil && json.Unmarshal(part.data, &class) == nil && class.Kind == deviceClass {
			all[class.Metadata.Name] = &class.Spec
		}
	}
	return all
}

// draIn checks a DeviceClass, a ResourceClaim or a template of one: what Prepare would
// refuse of it, and what ADD would of the CNI configurations.
func (c Checker) draIn(s *sheet, data json.RawMessage) {
	at := map[string]string{deviceClass: "spec", claimKind: "spec.devices", claimTemplate: "spec.spec.devices"}[text(dig(data, "kind"))]
	if at == "" {
		s.wrong("$.kind", dig(data, "kind"), "must be %s, %s or %s", deviceClass, claimKind, claimTemplate)
		return
	}
	path, spec, isClass := "$."+at, dig(data, at), at == "spec"
	policy, unchecked := cniconfig.Policy{Driver: draDriver, AllowClaimTypes: c.ClaimTypes}, "nothing in it is for the driver "+draDriver
	var checked cniconfig.Checked
	if isClass {
		var class resourceapi.DeviceClassSpec
		if !s.api(path, spec, &class) {
			return
		}
		checked = policy.CheckClass(&class)
	} else {
		var claim resourceapi.DeviceClaim
		if !s.api(path, spec, &claim) {
			return
		}
		checked = policy.CheckClaim(&claim, c.Classes)
		if class := c.missing(claim.Requests); class != "" {
			unchecked = fmt.Sprintf("its DeviceClass %q is not at hand: validate both together", class)
		}
	}
	var configs []json.RawMessage
	_ = json.Unmarshal(dig(spec, "config"), &configs) // api has read it
	for _, r := range checked.Wrong {
		s.refusal(path, spec, r)
	}
	for n, config := range configs[:min(len(configs), cniconfig.MostConfigs)] {
		if text(dig(config, "opaque.driver")) == draDriver {
			c.parameters(s, fmt.Sprintf("%s.config[%d].opaque.parameters", path, n), dig(config, "opaque.parameters"), isClass)
		}
	}
	if !checked.Ours {
		s.none(path, nil, unchecked, unchecked)
	}
}

// missing is a class of the requests that is not at hand; "" = all are.
func (c Checker) missing(requests []resourceapi.DeviceRequest) string {
	for _, r := range requests {
		var names []string
		if r.Exactly != nil {
			names = []string{r.Exactly.DeviceClassName}
		}
		for _, sub := range r.FirstAvailable {
			names = append(names, sub.DeviceClassName)
		}
		for _, name := range names {
			if c.Classes[name] == nil {
				return name
			}
		}
	}
	return ""
}

// api decodes a part of an object of Kubernetes; ok is false if it is not as in the API.
func (s *sheet) api(path string, data json.RawMessage, into any) (ok bool) {
	err := json.Unmarshal(data, into)
	var wrong *json.UnmarshalTypeError
	switch {
	case data == nil:
		s.wrong(path, nil, "must be there (resource.k8s.io/v1)")
	case errors.As(err, &wrong):
		s.wrong(strings.TrimSuffix(path+"."+wrong.Field, "."), dig(data, wrong.Field), "must be %s (resource.k8s.io/v1)", config.InWords(wrong.Type))
	case err != nil:
		s.wrong(path, data, "must be as in resource.k8s.io/v1: %v", err)
	}
	return data != nil && err == nil
}

// refusal reports what cniconfig refuses below path, where spec is. A rule often begins with key
// and value, which a finding has already.
func (s *sheet) refusal(path string, spec json.RawMessage, r *cniconfig.Refusal) {
	value, rule := dig(spec, r.At), r.Rule
	for at, more := r.At, true; more; _, at, more = strings.Cut(at, ".") {
		if rest, said := strings.CutPrefix(rule, at); said && at != "" {
			rest = strings.TrimLeft(rest, ": ")
			rule = strings.TrimLeft(strings.TrimPrefix(strings.TrimPrefix(rest, show(value)), text(value)), ": ")
			break
		}
	}
	s.wrong(strings.TrimSuffix(path+"."+r.At, "."), value, "%s", strings.TrimPrefix(rule+": "+r.Remedy, "is missing: ")) // which a finding without value says
	if last := &s.found[len(s.found)-1]; len(last.Value) > 40 && value[0] == '{' {
		last.Value = "{…}" // the rule says what of it
	}
}

// dig gives the value of a key below data, such as config[0].opaque.driver; nil = there is
// none.
func dig(data json.RawMessage, at string) json.RawMessage {
	if at == "" {
		return data
	}
	var list []json.RawMessage
	var n int
	if rest, ok := strings.CutPrefix(at, "["); ok {
		index, rest, _ := strings.Cut(rest, "]")
		if _, err := fmt.Sscan(index, &n); err != nil || json.Unmarshal(data, &list) != nil || n >= len(list) {
			return nil
		}
		return dig(list[n], strings.TrimPrefix(rest, "."))
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil {
		return nil
	}
	for end := len(at); end > 0; end-- { // a key may hold a dot
		if value, ok := object[at[:end]]; ok && (end == len(at) || at[end] == '.' || at[end] == '[') {
			return dig(value, strings.TrimPrefix(at[end:], "."))
		}
	}
	return nil
}

// parameters checks the CNI configuration in those of our driver, and the place of a
// class's device.
func (c Checker) parameters(s *sheet, path string, raw json.RawMessage, isClass bool) {
	conf, device := dig(raw, "config"), dig(raw, "device")
	if isClass && device != nil {
		how, refusal := cniconfig.ParseHow(device)
		if refusal == nil && conf != nil {
			refusal = how.Check(conf)
		}
		if refusal != nil {
			s.wrong(path+".device", device, "%s: %s", strings.TrimPrefix(refusal.Rule, "device: "), refusal.Remedy)
		}
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(conf, &object) != nil || object == nil {
		return // ifName alone, or cniconfig has refused it
	}
	if !isClass && c.ClaimTypes == nil {
		s.warn(path+".config", object["type"], "only nodes that run cni-dra-driver with --allow-claim-config take a config from a claim")
	}
	c.list(s, path+".config", object, network{dra: true})
}
