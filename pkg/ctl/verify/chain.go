package verify

import (
	"encoding/json"
	"fmt"
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
			`must declare {%q: true}, or the runtime passes no path and no file is written (section 5.1); or set "deviceInfoFile": "auto"`, fileCapability)
	case in.multus && !in.resource:
		s.warn(path+".deviceInfoFile", nil,
			`should be "auto", or the %s have the annotation %s: Multus passes a path only for a network with a device`, definition, resourceAnnotation)
	}
}

// position warns if there will be nothing to do: no plugin before, no delegate, no device.
func (s *sheet) position(path string, object map[string]json.RawMessage, cfg *config.Config, in network) {
	if in.after || object["delegates"] != nil || object["prevResult"] != nil || cfg.DeviceID != "" || cfg.DeviceInfo != nil || in.resource {
		if in.maker != "" && cfg.DeviceInfo == nil {
			s.warn(path, object["type"], "runs before %s, which makes the interface: put it after that plugin, or the result has no pciID", in.maker)
		}
		return
	}
	const rule = `has nothing to do as the first plugin, without "delegates", "deviceID" and "deviceInfo"`
	remedy := ": chain it after the plugin that makes the interface"
	if in.following {
		remedy = ": put it after the plugin that makes the interface"
	}
	if in.multus {
		s.wrong(path, object["type"], "%s", rule+remedy)
		return
	}
	s.warn(path, object["type"], "%s", rule+", unless the runtime passes a deviceID"+remedy)
}

// chained are the plugins that change an existing interface: those of
// containernetworking/plugins and the common ones of others. All others make one.
var chained = []string{"bandwidth", "firewall", "portmap", "sbr", "tuning", "vrf", "rdma", "istio-cni", "route-override", "cilium-cni"}

// maker is the type of the first plugin that makes an interface; "" = there is none.
func maker(plugins []map[string]json.RawMessage) string {
	for _, p := range plugins {
		if kind := text(p["type"]); kind != "" && !slices.Contains(chained, kind) {
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
	for n, d := range cfg.Delegates {
		here := fmt.Sprintf("%s.delegates[%d]", path, n)
		if d.Type == c.Plugin {
			s.wrong(here+".type", quote(d.Type), "must be another plugin: it would run itself")
		} else if c.Find != nil {
			if err := c.Find(d.Type); err != nil {
				s.wrong(here+".type", quote(d.Type), "must be in a directory of CNI_PATH: %v", err)
			}
		}
		wanted := s.wanted(here, d.Raw)
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
func (s *sheet) wanted(path string, delegate json.RawMessage) []string {
	var child struct{ Capabilities json.RawMessage }
	if json.Unmarshal(delegate, &child) != nil || child.Capabilities == nil {
		return nil
	}
	var all map[string]bool
	if json.Unmarshal(child.Capabilities, &all) != nil {
		s.wrong(path+".capabilities", child.Capabilities, `must be an object of booleans, {"mac": true}`)
		return nil
	}
	maps.DeleteFunc(all, func(_ string, declared bool) bool { return !declared })
	return slices.Sorted(maps.Keys(all))
}
