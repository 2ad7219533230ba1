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

	"devinfo-cni.io/pkg/core/config"
)

// A capability is a CNI capability argument (CONVENTIONS.md, "Dynamic Plugin specific fields") that a claim may set
// if its class allows it.
type capability struct {
	check func(json.RawMessage) error
	write string // an example, for remedies
}

var capabilities = map[string]capability{
	"ips":            {checkIPs, `["10.1.0.7/24", "fd00::7/64"]`},
	"mac":            {checkHardware(6), `"02:00:00:00:00:07"`},
	"infinibandGUID": {checkHardware(8), `"c2:11:22:33:44:55:66:77"`},
	"bandwidth":      {checkBandwidth, `{"ingressRate": 1000000, "ingressBurst": 100000}, in bits`},
	"portMappings":   {checkPorts, `[{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]`},
}

func capabilityNames() []string { return slices.Sorted(maps.Keys(capabilities)) }

// take decodes the capability arguments of a claim, and refuses invalid ones.
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
			wrong.add(key, fmt.Sprintf("%s %.80s: %v", key, value, config.InWords(err)), "write it as "+capabilities[key].write)
		}
	}
}

func checkIPs(raw json.RawMessage) error {
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, text := range list {
		_, noPrefix := netip.ParsePrefix(text)
		if addr, err := netip.ParseAddr(text); noPrefix != nil && (err != nil || addr.Zone() != "") {
			return fmt.Errorf("%q is not an address, with or without prefix length", text)
		}
	}
	if len(list) == 0 {
		return errors.New("the list is empty")
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

// strictly decodes a JSON value and returns an error for unknown keys.
func strictly(raw json.RawMessage, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

func checkPorts(raw json.RawMessage) error {
	var list []struct {
		HostPort, ContainerPort uint16
		Protocol                string
		HostIP                  netip.Addr
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
	}
	return nil
}
