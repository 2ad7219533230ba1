package cniconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/containernetworking/cni/libcni"
	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/config"
)

// The accepted values of apiVersion and kind. The Device Configuration API uses both groups and both kinds.
var (
	apiVersions = []string{"cni.networking.x-k8s.io/v1alpha1", "cni.dra.networking.x-k8s.io/v1alpha1"}
	kinds       = []string{"CNIConfig", "CNI"}
)

// parameters are the opaque parameters of a class, of a claim, or of both combined.
type parameters struct {
	ifName string                    // "" = missing
	config json.RawMessage           // an object; nil = missing
	list   *libcni.NetworkConfigList // the parsed config; nil = missing or wrong

	// Extensions of the Device Configuration API, allowed in a class:
	late             bool     // true if waitForAttach is false
	allowedClaimArgs []string // names of capability arguments
	device           json.RawMessage
	driver           string                     // kernel driver to bind the device to; "" = keep its driver
	values           map[string]json.RawMessage // capability arguments of a claim, by name
}

const (
	fromClass = resourceapi.AllocationConfigSourceClass
	fromClaim = resourceapi.AllocationConfigSourceClaim
)

// parameters combines the driver's parameters of a class and of a claim. The refusals are all mistakes.
func (p Policy) parameters(configs []resourceapi.DeviceAllocationConfiguration) (parameters, refusals) {
	class, claim, wrong := p.both(configs)
	switch {
	case class.config != nil && claim.config != nil:
		wrong.add("", "both the DeviceClass and the claim have a config", "remove config from the claim; its ifName still overrides that of the class")
	case class.config == nil && claim.config == nil && wrong == nil:
		wrong.add("", noConfig+" for driver "+p.Driver,
			"use a DeviceClass with a config, or add one to the claim if the node allows this")
	}
	class.values, class.list, class.ifName = claim.values, cmp.Or(claim.list, class.list), cmp.Or(claim.ifName, class.ifName)
	return class, wrong
}

// ofParameters begins the mistakes that the parameters of a class or of a claim have by themselves.
const ofParameters = "parameters "

const noConfig = "neither the DeviceClass nor the claim has a config"

// both returns the driver's parameters of the class and of the claim. Missing and wrong parameters are the zero value.
func (p Policy) both(configs []resourceapi.DeviceAllocationConfiguration) (class, claim parameters, wrong refusals) {
	found := map[resourceapi.AllocationConfigSource]parameters{}
	for _, c := range configs {
		if !p.isOurs(c) {
			continue
		}
		_, again := found[c.Source]
		switch {
		case c.Source != fromClass && c.Source != fromClaim:
			wrong.add("", fmt.Sprintf("a config has source %q, instead of a class or a claim", c.Source), "update the driver, which does not support this source")
			continue
		case again:
			wrong.add("", fmt.Sprintf("more than one config of driver %s (%s)", p.Driver, c.Source), "give each request a config of its own, with the request's name in requests")
			continue
		}
		params, mistakes := p.decode(c.Opaque.Parameters.Raw, c.Source)
		for _, m := range mistakes {
			wrong.add(m.At, ofParameters+fmt.Sprintf("(%s): %s", c.Source, m.Rule), m.Remedy)
		}
		found[c.Source] = params
	}
	return found[fromClass], found[fromClaim], wrong
}

// decode decodes parameters and refuses unknown keys and values. The refusals are all mistakes.
func (p Policy) decode(raw []byte, source resourceapi.AllocationConfigSource) (out parameters, wrong refusals) {
	const limit = resourceapi.OpaqueParametersMaxLength
	var fields map[string]json.RawMessage
	var s scanner
	err := cmp.Or(config.InWords(json.Unmarshal(raw, &fields)), s.scan(raw))
	switch {
	case len(raw) == 0:
		wrong.add("", "parameters are empty", "give apiVersion, kind, and ifName or config")
	case len(raw) > limit:
		wrong.add("", fmt.Sprintf("parameters have %d bytes, at most %d are allowed", len(raw), limit), "make the config smaller")
	case !utf8.Valid(raw):
		wrong.add("", "parameters are not valid UTF-8", "write them as UTF-8")
	case err != nil:
		wrong.add("", fmt.Sprintf("invalid JSON: %v", err), "give one JSON object")
	}
	if wrong != nil {
		return out, wrong
	}
	wrong = s.wrong
	wrong.checkKeys(fields, source)
	wrong.oneOf(fields, "apiVersion", apiVersions)
	wrong.oneOf(fields, "kind", kinds)
	if v, ok := fields["ifName"]; ok && json.Unmarshal(v, &out.ifName) != nil {
		wrong.add("ifName", "ifName is not a string", `write it as "net1"`)
	} else if out.ifName != "" {
		wrong.keep(checkIfName(numbering{}.next(out.ifName)))
	}
	switch v := fields["config"]; {
	case v == nil || string(v) == "null":
	case v[0] != '{':
		wrong.add("config", "config is not an object", "write the CNI configuration as an object, not as a string")
	default:
		out.config = v
	}
	if source == fromClass {
		out.extend(fields, &wrong)
	} else {
		out.take(fields, &wrong)
	}
	switch {
	case wrong == nil && out.ifName == "" && out.config == nil && out.values == nil:
		wrong.add("", "parameters must have ifName or config", "give one of them, or remove the parameters")
	case out.config != nil && source == fromClaim:
		p.allow(s.types, &wrong)
	}
	if out.config != nil {
		out.list = list(out.config, &wrong)
	}
	_, refusal := deviceKeys(out.device, out.list)
	wrong.keep(refusal)
	return out, wrong
}

func (r *refusals) checkKeys(fields map[string]json.RawMessage, source resourceapi.AllocationConfigSource) {
	known := []string{"apiVersion", "kind", "ifName", "config"}
	if source == fromClass {
		known = append(known, "allowedClaimArgs", "device", "driver", "waitForAttach")
	} else {
		known = append(known, capabilityNames()...)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, key) {
			r.add(key, "unknown key "+quote(key), fmt.Sprintf("use only %s, in this spelling", strings.Join(known, ", ")))
		}
	}
}

// oneOf refuses a key that is missing or that has neither of two values.
func (r *refusals) oneOf(fields map[string]json.RawMessage, key string, values []string) {
	var have string
	remedy := fmt.Sprintf("use %q or %q", values[0], values[1])
	if v, given := fields[key]; !given {
		r.add(key, key+" is missing", remedy)
	} else if json.Unmarshal(v, &have) != nil || !slices.Contains(values, have) {
		r.add(key, key+" "+bare(v)+" is not known", remedy)
	}
}

// bare returns a JSON value in quotes. A string does not get a second pair.
func bare(v json.RawMessage) string { return quote(strings.Trim(string(v), `"`)) }

func (p *parameters) extend(fields map[string]json.RawMessage, wrong *refusals) {
	p.device = fields["device"]
	wait := true
	if v, ok := fields["waitForAttach"]; ok && (json.Unmarshal(v, &wait) != nil || string(v) == "null") {
		wrong.add("waitForAttach", "waitForAttach "+bare(v)+" is not a boolean", "write true or false")
	}
	p.late = !wait
	if v, ok := fields["driver"]; ok {
		if p.driver = "vfio-pci"; string(v) != `"vfio-pci"` {
			wrong.add("driver", "driver "+bare(v)+" is not known", `write "vfio-pci", or remove it`)
		}
	}
	if v, ok := fields["allowedClaimArgs"]; ok && json.Unmarshal(v, &p.allowedClaimArgs) != nil {
		wrong.add("allowedClaimArgs", "allowedClaimArgs is not a list of strings", `write it as ["ips", "mac"]`)
	}
	for n, key := range p.allowedClaimArgs {
		if !slices.Contains(capabilityNames(), key) {
			wrong.add(fmt.Sprintf("allowedClaimArgs[%d]", n), fmt.Sprintf("allowedClaimArgs: %s is not known", quote(key)), "use "+strings.Join(capabilityNames(), ", "))
		}
	}
}

// allow refuses plugin types that the configuration of a claim may not use.
func (p Policy) allow(types []named, wrong *refusals) {
	const remedy = "give the config in the DeviceClass and only the ifName in the claim, or "
	if len(p.AllowClaimTypes) == 0 && !p.allowAll {
		wrong.add("config", "config: a CNI configuration runs as root on the node, and this node accepts none from claims",
			remedy+"ask the node's administrator to start the driver with --allow-claim-config=TYPE,TYPE")
		return
	}
	for _, t := range types {
		switch name, isText := t.value.(string); {
		case !isText:
			wrong.add(t.path, t.path+" is not a string, so the plugin is unknown", `make each "type" of a config in a claim a string`)
		case !p.allowAll && !slices.Contains(p.AllowClaimTypes, name):
			wrong.add(t.path, fmt.Sprintf("%s: %s runs as root on the node, and claims may not use it", t.path, quote(name)),
				fmt.Sprintf("%sask the node's administrator to add it to --allow-claim-config (now %s)", remedy, strings.Join(p.AllowClaimTypes, ",")))
		}
	}
}

// RuntimeDeviceID is a key that libcni sets at run time. The driver does not write it into the configuration.
const RuntimeDeviceID = "runtimeConfig.deviceID"

// keys are the keys that can contain a device.
var keys = []string{"deviceID", "pciBusID", "device", "master", "bridge", RuntimeDeviceID}

// DeviceKeys is the key "device" of the parameters: the places in the configuration that get the device. nil selects the
// default key of each plugin. If it is empty, no plugin gets the device.
type DeviceKeys []Place

// Place is a plugin type and one of the keys of that plugin.
type Place struct{ Plugin, Key string }

// deviceKeys parses the key "device" of a class, or returns nil if it is missing. It refuses places that do not exist in
// the configuration, which is nil if only the claim has one.
func deviceKeys(raw json.RawMessage, config *libcni.NetworkConfigList) (DeviceKeys, *Refusal) {
	if raw == nil {
		return nil, nil
	}
	var list []map[string]string
	if err := json.Unmarshal(raw, &list); err != nil || list == nil {
		return nil, refuse("device", fmt.Sprintf("device: %.80s is not a list of places", raw), "write it as [{plugin: TYPE, key: deviceID}]")
	}
	places := DeviceKeys{}
	for n, fields := range list {
		p := Place{fields["plugin"], fields["key"]}
		is := func(plugin *libcni.PluginConfig) bool { return plugin.Network.Type == p.Plugin }
		mute := func(plugin *libcni.PluginConfig) bool { return is(plugin) && !plugin.Network.Capabilities["deviceID"] }
		switch {
		case len(fields) != 2 || p.Plugin == "" || p.Key == "":
			return nil, refuse("device", fmt.Sprintf("device[%d]: plugin and key are required, and no other keys are allowed", n), "write it as {plugin: TYPE, key: deviceID}")
		case !slices.Contains(keys, p.Key):
			return nil, refuse("device", fmt.Sprintf("device[%d].key: %q is not known", n, p.Key), "use "+strings.Join(keys, ", "))
		case config != nil && !slices.ContainsFunc(config.Plugins, is):
			return nil, refuse("device", fmt.Sprintf("device: the network has no plugin %q", p.Plugin), "give the type of a plugin in the config")
		case config != nil && p.Key == RuntimeDeviceID && slices.ContainsFunc(config.Plugins, mute):
			return nil, refuse("device", fmt.Sprintf("device: plugin %s does not declare the capability deviceID", p.Plugin),
				`give it "capabilities": {"deviceID": true}, or use a different key`)
		}
		places = append(places, p)
	}
	return places, nil
}
