package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
)

// A pod asks for networks by the one annotation, and has their status in the other.
const (
	networksAnnotation = "k8s.v1.cni.cncf.io/networks"
	statusAnnotation   = "k8s.v1.cni.cncf.io/network-status"
)

// deviceInfo checks one device-info map.
func (s *sheet) deviceInfo(path string, data json.RawMessage) {
	info, err := devinfo.Parse(data)
	var version *devinfo.VersionError
	switch {
	case errors.As(err, &version):
		s.wrong(path+".version", quote(version.Version), "must be a version 1.x (Device Information Specification, section 3.1.2)")
		return
	case err != nil:
		s.wrong(path, data, "%v", err)
		return
	}
	for _, v := range info.Validate() {
		s.found = append(s.found, of(path, v))
	}
	s.unknown(path, info.Extra, devinfo.Keys(""))
	if info.PCI != nil {
		s.unknown(path+".pci", info.PCI.Extra, devinfo.Keys(devinfo.TypePCI))
	}
	if info.VDPA != nil {
		s.unknown(path+".vdpa", info.VDPA.Extra, devinfo.Keys(devinfo.TypeVDPA))
	}
	if info.VhostUser != nil {
		s.unknown(path+".vhost-user", info.VhostUser.Extra, devinfo.Keys(devinfo.TypeVhostUser))
	}
	if info.Memif != nil {
		s.unknown(path+".memif", info.Memif.Extra, devinfo.Keys(devinfo.TypeMemif))
	}
}

// of is a violation in a device-info map at path.
func of(path string, v devinfo.Violation) Finding {
	return Finding{Path: path + strings.TrimPrefix(v.Path, "$"), Value: v.Value, Rule: v.Rule, Warning: v.Warning}
}

// networkStatusIn checks the list itself, or that of a pod.
func (s *sheet) networkStatusIn(data json.RawMessage) {
	var pod struct {
		Kind     string
		Metadata struct{ Annotations map[string]json.RawMessage }
		Status   struct{ Phase string }
	}
	if data[0] != '{' || json.Unmarshal(data, &pod) != nil || pod.Kind != "Pod" {
		s.networkStatus("$", data)
		return
	}
	path := at("$.metadata.annotations", statusAnnotation)
	raw, ok := pod.Metadata.Annotations[statusAnnotation]
	asked := text(pod.Metadata.Annotations[networksAnnotation]) != ""
	switch {
	case !ok && asked && pod.Status.Phase == "Running":
		s.wrong(path, nil, "the pod runs and asks for networks, but Multus has written no status of them: see that Multus is the node's CNI plugin, and its log")
		return
	case !ok:
		s.none(path, nil, "the pod has no network status: Multus writes it once the pod's networks are attached",
			"Multus has written no network status: the pod asks for no networks, or does not run yet")
		return
	}
	if list, ok := s.embedded(path, raw); ok {
		s.networkStatus(path, list)
	}
}

// embedded is the JSON in a string of a Kubernetes object.
func (s *sheet) embedded(path string, raw json.RawMessage) (json.RawMessage, bool) {
	var inner string
	if err := json.Unmarshal(raw, &inner); err != nil {
		s.wrong(path, raw, "must be a string that holds JSON")
		return nil, false
	}
	data := json.RawMessage(strings.TrimSpace(inner))
	if err := jsonError(data, 0); err != nil {
		s.found = append(s.found, unreadable(path, raw, err))
		return nil, false
	}
	s.repeatedKeys(path, data)
	return data, true
}

// networkStatus checks the list of a pod's networks.
func (s *sheet) networkStatus(path string, data json.RawMessage) {
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		s.wrong(path, data, "must be a list of network statuses, a JSON array")
		return
	}
	interfaces, defaults := map[string]int{}, 0
	for n, raw := range list {
		here := fmt.Sprintf("%s[%d]", path, n)
		var network map[string]json.RawMessage
		if json.Unmarshal(raw, &network) != nil || network == nil {
			s.wrong(here, raw, "must be the status of a network, a JSON object")
			continue
		}
		s.network(here, network)
		if name := text(network["interface"]); name != "" {
			if interfaces[name]++; interfaces[name] == 2 {
				s.wrong(here+".interface", network["interface"], "must be one network's only: another has it too")
			}
		}
		if string(network["default"]) == "true" {
			if defaults++; defaults == 2 {
				s.wrong(here+".default", network["default"], "must be true for one network at most")
			}
		}
	}
}

// statusKeys are the keys of one network's status, with the check of a value.
var statusKeys = []struct {
	key   string
	rule  string
	check func(raw json.RawMessage) bool
}{
	{"name", "must be the name of the network, a string that is not empty", func(raw json.RawMessage) bool { return text(raw) != "" }},
	{"interface", "must be the name of the interface in the pod, a string", is[string]},
	{"ips", "must be a list of IP addresses", eachOf(isIP)},
	{"mac", "must be a hardware address, xx:xx:xx:xx:xx:xx", func(raw json.RawMessage) bool { return is[string](raw) && isMAC(text(raw)) }},
	{"mtu", "must be a number of bytes", is[uint32]},
	{"default", "must be true or false", is[bool]},
	{"dns", "must be an object", is[map[string]json.RawMessage]},
	{"gateway", "must be a list of IP addresses", eachOf(isIP)},
	{"default-route", "must be a list of IP addresses", eachOf(isIP)},
	{"device-info", "must be a map (Device Information Specification, section 6.1)", is[map[string]json.RawMessage]},
}

func is[T any](raw json.RawMessage) bool {
	var value T
	return json.Unmarshal(raw, &value) == nil
}

func eachOf(good func(string) bool) func(json.RawMessage) bool {
	return func(raw json.RawMessage) bool {
		var list []string
		return json.Unmarshal(raw, &list) == nil && !slices.ContainsFunc(list, func(one string) bool { return !good(one) })
	}
}

// isIP accepts an address with or without a prefix length: implementations write either.
func isIP(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(s)
	return err == nil
}

func isMAC(s string) bool {
	_, err := net.ParseMAC(s)
	return s == "" || err == nil
}

func (s *sheet) network(path string, network map[string]json.RawMessage) {
	var names []string
	for _, k := range statusKeys {
		names = append(names, k.key)
		raw, there := network[k.key]
		if !there && k.key == "name" {
			s.wrong(path+".name", nil, "%s", k.rule)
		}
		if !there || string(raw) == "null" {
			continue
		}
		if k.key == "gateway" && string(raw) == `["<nil>"]` || k.key == "gateway" && string(raw) == `["\u003cnil\u003e"]` {
			s.warn(path+".gateway", raw, "is not an address: Multus writes it for a network without a gateway")
		} else if !k.check(raw) {
			s.wrong(path+"."+k.key, raw, "%s", k.rule)
		} else if k.key == "device-info" {
			s.deviceInfo(path+".device-info", raw)
		}
	}
	s.unknown(path, network, names)
}
