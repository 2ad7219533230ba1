package validate

import (
	"encoding/json"
	"maps"
	"slices"

	"devinfo-cni.io/pkg/config"
)

// fileCapability asks the runtime for the path of the device-info file (Device
// Information Specification, section 5.1).
const fileCapability = "CNIDeviceInfoFile"

// capability says when the runtime will pass no path for the file.
func (s *sheet) capability(path string, object map[string]json.RawMessage, cfg *config.Config, in network) {
	switch {
	case cfg.AutoFile || cfg.InfoFile != "":
	case !cfg.Capabilities[fileCapability]:
		s.wrong(path+".capabilities", object["capabilities"],
			`must declare {%q: true}, or the runtime passes no path and no file is written (Device Information Specification, section 5.1); or set "deviceInfoFile": "auto"`, fileCapability)
	case in.multus && !in.resource:
		s.wrong(path+".deviceInfoFile", nil,
			`should be "auto", or the %s have the annotation %s: Multus passes a path only for a network with a device`, definition, resourceAnnotation)
		s.found[len(s.found)-1].Warning = !cfg.Strict // or ADD refuses it
	}
}

// position reports a place in the chain where devinfo has nothing to find, which ADD
// refuses, or finds a device whose interface is not made yet.
func (s *sheet) position(path string, object map[string]json.RawMessage, idle bool, cfg *config.Config, in network) {
	device := in.resource || !in.multus && cfg.Capabilities["deviceID"] // the runtime passes one
	switch {
	case idle && !in.after && !device && in.maker != "":
		s.wrong(path, object["type"], "runs before %s, which makes the interface, and ADD refuses it: put it after that plugin", in.maker)
	case idle && !in.after && !device && in.dra:
		s.warn(path, object["type"], `has nothing to do unless the claim's device gives it a deviceID: put it after the plugin that makes the interface, or give it "delegates" or "deviceInfo"`)
	case idle && !in.after && !device:
		remedy := `declare "capabilities": {"deviceID": true} if the runtime passes one`
		if in.multus {
			remedy = "give the " + definition + " the annotation " + resourceAnnotation
		}
		s.wrong(path, object["type"], `has nothing to do, and ADD refuses it: chain it after the plugin that makes the interface, give it "delegates", "deviceID" or "deviceInfo", or %s`, remedy)
	case in.maker != "" && cfg.DeviceInfo == nil && (in.after || cfg.DeviceID != "" || device || object["delegates"] != nil):
		s.warn(path, object["type"], "runs before %s, which makes the interface: put it after that plugin, or the result has no pciID", in.maker)
	}
}

// chained are the plugins that change an existing interface: those of
// containernetworking/plugins and the common ones of others. All others make one.
var chained = []string{"bandwidth", "firewall", "portmap", "sbr", "tuning", "vrf", "rdma", "istio-cni", "route-override", "cilium-cni"}

// maker is the type of the first plugin that makes an interface; "" = there is none.
func maker(plugins []map[string]json.RawMessage) string {
	for _, p := range plugins {
		if kind := text(p["type"]); kind != "" && kind != Plugin && !slices.Contains(chained, kind) {
			return kind
		}
	}
	return ""
}

// needs are the capabilities without which a plugin has nothing to do.
var needs = map[string]string{"portmap": "portMappings"}

// delegates checks the plugins that ours is to run.
func (c Checker) delegates(s *sheet, path string, cfg *config.Config) {
	taken := map[string]bool{fileCapability: true, "deviceID": true}
	for _, d := range cfg.Delegates {
		here := path + "." + d.Key
		if c.Find != nil && d.Type != Plugin {
			if err := c.Find(d.Type); err != nil {
				s.wrong(here+".type", quote(d.Type), "ADD refuses it: %v", err)
			}
		}
		wanted := wanted(d.Raw)
		if need := needs[d.Type]; need != "" && !slices.Contains(wanted, need) {
			s.warn(here+".capabilities", nil, "should declare {%q: true}: without what the runtime passes by it %s does nothing", need, d.Type)
		}
		for _, name := range wanted {
			if taken[name] = true; !cfg.Capabilities[name] {
				s.wrong(at(here+".capabilities", name), json.RawMessage("true"),
					"must be declared in %s.capabilities too: a runtime looks no deeper, and would pass no value", path)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Capabilities)) {
		if len(cfg.Delegates) > 0 && cfg.Capabilities[name] && !taken[name] {
			s.warn(at(path+".capabilities", name), json.RawMessage("true"), "has no effect: no delegate declares it")
		}
	}
}

// wanted are the capabilities that a delegate declares, sorted.
func wanted(delegate json.RawMessage) []string {
	var child struct{ Capabilities map[string]bool }
	_ = json.Unmarshal(delegate, &child) // DelegateProblems says it
	maps.DeleteFunc(child.Capabilities, func(_ string, declared bool) bool { return !declared })
	return slices.Sorted(maps.Keys(child.Capabilities))
}
