package cniconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

// A capability is a capability argument of CNI (CONVENTIONS.md, "Dynamic Plugin specific
// fields") that a claim may give if its class says so.
type capability struct {
	check func(json.RawMessage) error
	write string // how it is written
}

func capabilities() map[string]capability {
	return map[string]capability{
		"ips":            {checkIPs, `["10.1.0.7/24", "fd00::7/64"]`},
		"mac":            {checkHardware(6), `"02:00:00:00:00:07"`},
		"infinibandGUID": {checkHardware(8), `"c2:11:22:33:44:55:66:77"`},
		"bandwidth":      {checkBandwidth, `{"ingressRate": 1000000, "ingressBurst": 100000}, in bits`},
		"portMappings":   {checkPorts, `[{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]`},
	}
}

func capabilityNames() []string { return slices.Sorted(maps.Keys(capabilities())) }

// take takes the values of a claim.
func (p *parameters) take(fields map[string]json.RawMessage) (wrong []*Refusal) {
	for _, key := range capabilityNames() {
		value, ok := fields[key]
		if !ok {
			continue
		}
		if p.values == nil {
			p.values = map[string]json.RawMessage{}
		}
		p.values[key] = value
		if err := capabilities()[key].check(value); err != nil {
			wrong = append(wrong, refuse(key, fmt.Sprintf("%s %s: %v", key, clip(string(value)), err), "write it as "+capabilities()[key].write))
		}
	}
	return wrong
}

// lets says whether a class lets claims set the values.
func (class parameters) lets(values map[string]json.RawMessage) *Refusal {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(class.claimMaySet, key) {
			return refuse(key, fmt.Sprintf("parameters (FromClaim): %s %s: the DeviceClass does not let claims set it", key, clip(string(values[key]))),
				fmt.Sprintf("leave it out, or have the class say claimMaySet: [%s]", key))
		}
	}
	return nil
}

// takes says whether a plugin of the network, which is list, takes each value.
func (n *Network) takes(list *libcni.NetworkConfigList) *Refusal {
	for _, key := range slices.Sorted(maps.Keys(n.Capabilities)) {
		if !slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool { return p.Network.Capabilities[key] }) {
			return refuse(key, fmt.Sprintf("%s %s: no plugin of network %s takes it", key, clip(string(n.Capabilities[key])), n.Network),
				fmt.Sprintf(`leave it out, or have the DeviceClass give a plugin "capabilities": {%q: true}`, key))
		}
	}
	return nil
}

// strictly decodes JSON without keys that are not known.
func strictly(raw json.RawMessage, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("there is something after it")
	}
	return nil
}

func checkIPs(raw json.RawMessage) error {
	var list []string
	if err := strictly(raw, &list); err != nil {
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
		return fmt.Errorf("it is empty")
	}
	return nil
}

func checkHardware(size int) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var text string
		if err := strictly(raw, &text); err != nil {
			return err
		}
		if a, err := net.ParseMAC(text); err != nil || len(a) != size {
			return fmt.Errorf("%q is not a hardware address of %d bytes", text, size)
		}
		return nil
	}
}

func checkBandwidth(raw json.RawMessage) error {
	var rates struct {
		IngressRate  *uint64 `json:"ingressRate"` // bit/s
		IngressBurst *uint64 `json:"ingressBurst"`
		EgressRate   *uint64 `json:"egressRate"`
		EgressBurst  *uint64 `json:"egressBurst"`
	}
	return strictly(raw, &rates)
}

func checkPorts(raw json.RawMessage) error {
	var list []struct {
		HostPort      uint16 `json:"hostPort"`
		ContainerPort uint16 `json:"containerPort"`
		Protocol      string `json:"protocol"`
		HostIP        string `json:"hostIP"`
	}
	if err := strictly(raw, &list); err != nil {
		return err
	}
	for _, m := range list {
		switch {
		case m.HostPort == 0 || m.ContainerPort == 0:
			return fmt.Errorf("hostPort and containerPort must be 1 to 65535")
		case !slices.Contains([]string{"tcp", "udp", "sctp"}, strings.ToLower(m.Protocol)):
			return fmt.Errorf("protocol %q is not tcp, udp or sctp", m.Protocol)
		}
		if _, err := netip.ParseAddr(m.HostIP); m.HostIP != "" && err != nil {
			return fmt.Errorf("hostIP %q is not an address", m.HostIP)
		}
	}
	return nil
}
