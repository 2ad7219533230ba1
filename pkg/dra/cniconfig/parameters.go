package cniconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
)

// What parameters must call themselves: the Device Configuration API uses both groups
// and both kinds.
var (
	apiVersions = []string{"cni.networking.x-k8s.io/v1alpha1", "cni.dra.networking.x-k8s.io/v1alpha1"}
	kinds       = []string{"CNIConfig", "CNI"}
)

// parameters are the opaque parameters of a class, of a claim, or of both together.
type parameters struct {
	ifName string          // "" = not given
	config json.RawMessage // an object; nil = not given

	// Extensions of the Device Configuration API. Of a class:
	late             bool     // waitForAttach: false
	allowedClaimArgs []string // capability arguments
	device           json.RawMessage
	driver           string                     // that the device is bound to; "" = as it is
	values           map[string]json.RawMessage // of a claim: the capability arguments, by their names
}

const (
	fromClass = resourceapi.AllocationConfigSourceClass
	fromClaim = resourceapi.AllocationConfigSourceClaim
)

// parameters joins those of a class and of a claim that are for our driver.
func (p Policy) parameters(configs []resourceapi.DeviceAllocationConfiguration) (parameters, *Refusal) {
	class, claim, err := p.both(configs)
	switch {
	case err != nil:
		return parameters{}, err
	case class.config != nil && claim.config != nil:
		return parameters{}, refuse("", "the DeviceClass gives a config and the claim another", "leave config out of the claim: ifName alone goes over the class's")
	case class.config == nil && claim.config == nil:
		return parameters{}, refuse("", fmt.Sprintf("there is no config for driver %s", p.Driver),
			"use a DeviceClass that gives one, or one in the claim where the node allows that")
	}
	for _, key := range slices.Sorted(maps.Keys(claim.values)) {
		if !slices.Contains(class.allowedClaimArgs, key) {
			return parameters{}, refuse(key, fmt.Sprintf("parameters (FromClaim): %s %s: the DeviceClass does not let claims set it", key, clip(string(claim.values[key]))),
				fmt.Sprintf("leave it out, or have the class say allowedClaimArgs: [%s]", key))
		}
	}
	class.values = claim.values
	if claim.config != nil {
		class.config = claim.config
	}
	if claim.ifName != "" {
		class.ifName = claim.ifName
	}
	return class, nil
}

// both returns the parameters of a class and of a claim; none are the zero value.
func (p Policy) both(configs []resourceapi.DeviceAllocationConfiguration) (class, claim parameters, refusal *Refusal) {
	found := map[resourceapi.AllocationConfigSource]parameters{}
	for _, c := range configs {
		if !p.isOurs(c) {
			continue
		}
		_, again := found[c.Source]
		switch {
		case c.Source != fromClass && c.Source != fromClaim:
			return class, claim, refuse("", fmt.Sprintf("a config is from %q, not from a class or a claim", c.Source), "update the driver: this one does not know that source")
		case again:
			return class, claim, refuse("", fmt.Sprintf("more than one config of driver %s (%s)", p.Driver, c.Source), "give each request one, by its name in requests")
		}
		params, wrong := p.decode(c.Opaque.Parameters.Raw, c.Source)
		if wrong != nil {
			wrong[0].Rule = fmt.Sprintf("parameters (%s): %s", c.Source, wrong[0].Rule)
			return class, claim, wrong[0]
		}
		found[c.Source] = params
	}
	return found[fromClass], found[fromClaim], nil
}

// decode reads parameters strictly: what is not understood is not run. It returns all that is
// wrong.
func (p Policy) decode(raw []byte, source resourceapi.AllocationConfigSource) (out parameters, wrong refusals) {
	const limit = resourceapi.OpaqueParametersMaxLength
	var fields map[string]json.RawMessage
	err := json.Unmarshal(raw, &fields)
	switch {
	case len(raw) == 0:
		wrong.add("", "they are empty", "give apiVersion, kind and ifName or config")
	case len(raw) > limit:
		wrong.add("", fmt.Sprintf("they have %d bytes, at most %d are allowed", len(raw), limit), "make the config smaller")
	case !utf8.Valid(raw):
		wrong.add("", "they are not valid UTF-8", "write them as UTF-8")
	case err != nil:
		wrong.add("", fmt.Sprintf("invalid JSON: %v", err), "give one JSON object")
	}
	if wrong != nil {
		return out, wrong
	}
	s := scan(raw)
	wrong = s.wrong
	wrong.checkKeys(fields, source)
	wrong.oneOf(fields, "apiVersion", apiVersions)
	wrong.oneOf(fields, "kind", kinds)
	if v, ok := fields["ifName"]; ok && json.Unmarshal(v, &out.ifName) != nil {
		wrong.add("ifName", "ifName is not a string", `write it as "net1"`)
	}
	switch v := fields["config"]; {
	case v == nil || string(v) == "null":
	case v[0] != '{':
		wrong.add("config", "config is not an object", "give the CNI configuration itself, not as a string")
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
		wrong.add("", "neither ifName nor config", "give one of them, or leave the parameters out")
	case out.config != nil && source == fromClaim:
		p.allow(s.types, &wrong)
	}
	return out, wrong
}

func (l *refusals) checkKeys(fields map[string]json.RawMessage, source resourceapi.AllocationConfigSource) {
	known := []string{"apiVersion", "kind", "ifName", "config"}
	if source == fromClass {
		known = append(known, "allowedClaimArgs", "device", "driver", "waitForAttach")
	} else {
		known = append(known, capabilityNames()...)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, key) {
			l.add(key, "unknown key "+quote(key), fmt.Sprintf("only %s are known here, in this spelling", strings.Join(known, ", ")))
		}
	}
}

// oneOf refuses a key that is missing or has none of two values.
func (l *refusals) oneOf(fields map[string]json.RawMessage, key string, values []string) {
	var have string
	v, given := fields[key]
	switch err := json.Unmarshal(v, &have); {
	case !given:
		have = "is missing"
	case err == nil && slices.Contains(values, have):
		return
	default:
		have = bare(v) + " is not known"
	}
	l.add(key, key+" "+have, fmt.Sprintf("use %q or %q", values[0], values[1]))
}

// optional returns the one value of a key, or "" if the key is not given. It refuses any other value.
func (l *refusals) optional(fields map[string]json.RawMessage, key, value string) string {
	v, given := fields[key]
	if !given {
		return ""
	}
	if string(v) != `"`+value+`"` {
		l.add(key, fmt.Sprintf("%s %s is not known", key, bare(v)), fmt.Sprintf("write %q, or leave it out", value))
	}
	return value
}

// bare quotes a JSON value once.
func bare(v json.RawMessage) string { return quote(strings.Trim(string(v), `"`)) }

func (p *parameters) extend(fields map[string]json.RawMessage, wrong *refusals) {
	p.device = fields["device"]
	wait := true
	if v, ok := fields["waitForAttach"]; ok && (json.Unmarshal(v, &wait) != nil || string(v) == "null") {
		wrong.add("waitForAttach", "waitForAttach "+bare(v)+" is not a boolean", "write true or false")
	}
	p.late = !wait
	p.driver = wrong.optional(fields, "driver", "vfio-pci")
	if v, ok := fields["allowedClaimArgs"]; ok && json.Unmarshal(v, &p.allowedClaimArgs) != nil {
		wrong.add("allowedClaimArgs", "allowedClaimArgs is not a list of strings", `write it as ["ips", "mac"]`)
	}
	for n, key := range p.allowedClaimArgs {
		if !slices.Contains(capabilityNames(), key) {
			wrong.add(fmt.Sprintf("allowedClaimArgs[%d]", n), fmt.Sprintf("allowedClaimArgs: %s is not known", quote(key)), "use "+strings.Join(capabilityNames(), ", "))
		}
	}
}

// allow refuses plugin types that the configuration of a claim must not name.
func (p Policy) allow(types []named, wrong *refusals) {
	const remedy = "have the DeviceClass give the config and the claim the ifName alone, or "
	if len(p.AllowClaimTypes) == 0 && !p.allowAll {
		wrong.add("config", "config: a CNI configuration runs as root of the node, and here claims may give none",
			remedy+"have the node's administrator start the driver with --allow-claim-config=TYPE,TYPE")
		return
	}
	for _, t := range types {
		switch {
		case !t.isText:
			wrong.add(t.path, t.path+" is not a string, so what it runs is unknown", `make each "type" of a config in a claim a string`)
		case !p.allowAll && !slices.Contains(p.AllowClaimTypes, t.value):
			wrong.add(t.path, fmt.Sprintf("%s: %s runs as root of the node, and claims may not use it", t.path, quote(t.value)),
				fmt.Sprintf("%shave the node's administrator add it to --allow-claim-config (now %s)", remedy, strings.Join(p.AllowClaimTypes, ",")))
		}
	}
}

// RuntimeDeviceID is the key that libcni sets, not the driver.
const RuntimeDeviceID = "runtimeConfig.deviceID"

// keys are those that a device may go into.
var keys = []string{"deviceID", "pciBusID", "device", "master", "bridge", RuntimeDeviceID}

// How says where a device goes: the parameters' key "device".
type How []Place

// Place is the type of a plugin, and one of its keys: see keys.
type Place struct{ Plugin, Key string }

// ParseHow reads the parameters' key "device". An empty list puts the device nowhere.
func ParseHow(raw json.RawMessage) (How, *Refusal) {
	var list []map[string]string
	if err := json.Unmarshal(raw, &list); err != nil || list == nil {
		return nil, refuse("", fmt.Sprintf("device: %.80s is not a list of places", raw), "write it as [{plugin: TYPE, key: deviceID}]")
	}
	how := How{}
	for n, fields := range list {
		p := Place{fields["plugin"], fields["key"]}
		switch {
		case len(fields) != 2 || p.Plugin == "" || p.Key == "":
			return nil, refuse("", fmt.Sprintf("device[%d]: it must have plugin and key, and nothing else", n), "write it as {plugin: TYPE, key: deviceID}")
		case !slices.Contains(keys, p.Key):
			return nil, refuse("", fmt.Sprintf("device[%d].key: %q is not known", n, p.Key), "use "+strings.Join(keys, ", "))
		}
		how = append(how, p)
	}
	return how, nil
}

// Check refuses places that a CNI configuration, a list or a single plugin, does not have,
// whatever the device.
func (how How) Check(config json.RawMessage) *Refusal {
	type plugin struct {
		Type         string
		Capabilities map[string]bool
	}
	var list struct {
		plugin
		Plugins []plugin
	}
	err := json.Unmarshal(config, &list)
	if wrong := (*json.UnmarshalTypeError)(nil); err != nil && (!errors.As(err, &wrong) || wrong.Field == "") {
		return refuse("", "config is no CNI configuration", "give an object")
	}
	if list.Plugins == nil {
		list.Plugins = []plugin{list.plugin}
	}
	for _, place := range how {
		is := func(p plugin) bool { return p.Type == place.Plugin }
		mute := func(p plugin) bool { return is(p) && !p.Capabilities["deviceID"] }
		switch {
		case !slices.ContainsFunc(list.Plugins, is):
			return refuse("", fmt.Sprintf("device: the network has no plugin %q", place.Plugin), "name one of the config's plugins by its type")
		case place.Key == RuntimeDeviceID && slices.ContainsFunc(list.Plugins, mute):
			return refuse("", fmt.Sprintf("device: plugin %s does not declare the capability deviceID", place.Plugin),
				`give it "capabilities": {"deviceID": true}, or name another key`)
		}
	}
	return nil
}

// A capability is a capability argument of CNI (CONVENTIONS.md, "Dynamic Plugin specific
// fields") that a claim may give if its class says so.
type capability struct {
	check func(json.RawMessage) error
	write string // how it is written
}

var capabilities = map[string]capability{
	"ips":            {checkIPs, `["10.1.0.7/24", "fd00::7/64"]`},
	"mac":            {checkHardware(6), `"02:00:00:00:00:07"`},
	"infinibandGUID": {checkHardware(8), `"c2:11:22:33:44:55:66:77"`},
	"bandwidth":      {checkBandwidth, `{"ingressRate": 1000000, "ingressBurst": 100000}, in bits`},
	"portMappings":   {checkPorts, `[{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]`},
}

func capabilityNames() []string { return slices.Sorted(maps.Keys(capabilities)) }

// take takes the capability arguments of a claim, and refuses those that are invalid.
func (p *parameters) take(fields map[string]json.RawMessage, wrong *refusals) {
	for _, key := range capabilityNames() {
		value, ok := fields[key]
		if !ok {
			continue
		}
		if p.values == nil {
			p.values = map[string]json.RawMessage{}
		}
		p.values[key] = value
		if err := capabilities[key].check(value); err != nil {
			wrong.add(key, fmt.Sprintf("%s %s: %v", key, clip(string(value)), err), "write it as "+capabilities[key].write)
		}
	}
}

// strictly decodes a JSON value without keys that are not known.
func strictly(raw json.RawMessage, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

func checkIPs(raw json.RawMessage) error {
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, text := range list {
		if _, err := netip.ParsePrefix(text); err == nil {
			continue
		}
		if addr, err := netip.ParseAddr(text); err != nil || addr.Zone() != "" {
			return fmt.Errorf("%q is not an address, with or without prefix length", text)
		}
	}
	if len(list) == 0 {
		return errors.New("it is empty")
	}
	return nil
}

func checkHardware(size int) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
		if a, err := net.ParseMAC(text); err != nil || len(a) != size {
			return fmt.Errorf("%q is not a hardware address of %d bytes", text, size)
		}
		return nil
	}
}

func checkBandwidth(raw json.RawMessage) error {
	var rates struct { // bit/s
		IngressRate, IngressBurst, EgressRate, EgressBurst *uint64
	}
	return strictly(raw, &rates)
}

func checkPorts(raw json.RawMessage) error {
	var list []struct {
		HostPort, ContainerPort uint16
		Protocol, HostIP        string
	}
	if err := strictly(raw, &list); err != nil {
		return err
	}
	for _, m := range list {
		switch {
		case m.HostPort == 0 || m.ContainerPort == 0:
			return errors.New("hostPort and containerPort must be 1 to 65535")
		case !slices.Contains([]string{"tcp", "udp", "sctp"}, strings.ToLower(m.Protocol)):
			return fmt.Errorf("protocol %q is not tcp, udp or sctp", m.Protocol)
		}
		if _, err := netip.ParseAddr(m.HostIP); m.HostIP != "" && err != nil {
			return fmt.Errorf("hostIP %q is not an address", m.HostIP)
		}
	}
	return nil
}
