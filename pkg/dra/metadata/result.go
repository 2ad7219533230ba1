package metadata

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	resourceapi "k8s.io/api/resource/v1"
)

// NetworkData returns the network data of interface ifName in the network namespace netns, from a valid CNI result of
// any version: the hardware address and at most 16 different IP addresses in canonical form. An IP address
// counts unless it belongs to a different interface. The warnings describe the missing parts.
func NetworkData(result json.RawMessage, ifName, netns string) (*resourceapi.NetworkDeviceData, []string, error) {
	r, own, err := parse(result, ifName, netns)
	if err != nil {
		return nil, nil, fmt.Errorf("CNI result: %w", err)
	}
	data := &resourceapi.NetworkDeviceData{InterfaceName: ifName}
	var warnings []string
	if own >= 0 {
		const limit = resourceapi.NetworkDeviceDataHardwareAddressMaxLength
		data.HardwareAddress = r.Interfaces[own].Mac
		if mac, err := net.ParseMAC(data.HardwareAddress); err == nil {
			data.HardwareAddress = mac.String() // the kernel's spelling
		} else if length := len(data.HardwareAddress); length > limit {
			data.HardwareAddress = ""
			warnings = append(warnings, fmt.Sprintf("hardwareAddress is left out: it has %d bytes, at most %d are allowed", length, limit))
		}
	}
	for _, ip := range r.IPs {
		if ip == nil || ip.Interface != nil && *ip.Interface != own {
			continue
		}
		if text, ok := canonical(ip.Address); !ok {
			warnings = append(warnings, fmt.Sprintf("the address %s (mask %s) is left out: it has no canonical form", ip.Address.IP, ip.Address.Mask))
		} else if !slices.Contains(data.IPs, text) {
			data.IPs = append(data.IPs, text)
		}
	}
	const maxIPs = resourceapi.NetworkDeviceDataMaxIPs
	if all := len(data.IPs); all > maxIPs {
		data.IPs = data.IPs[:maxIPs]
		warnings = append(warnings, fmt.Sprintf("%d of %d addresses are left out: at most %d are allowed", all-maxIPs, all, maxIPs))
	}
	return data, warnings, nil
}

// DefaultMTU is the MTU in bytes of a vhost-user socket whose network names none: the default of virtio devices.
// KubeVirt's binding plugin for vhost-user requires one of at least 68.
const DefaultMTU = 1500

// MTUOf returns the MTU of interface ifName in the network namespace netns, in bytes; 0 = unknown. It takes the MTU from
// the CNI result, which may contain it since CNI 1.1.0, else the last "mtu" in the configuration list.
func MTUOf(result, list json.RawMessage, ifName, netns string) int64 {
	const least = 68 // ETH_MIN_MTU (include/uapi/linux/if_ether.h)
	if r, own, err := parse(result, ifName, netns); err == nil && own >= 0 && r.Interfaces[own].Mtu >= least {
		return int64(r.Interfaces[own].Mtu)
	}
	var conf struct{ Plugins []json.RawMessage }
	_ = json.Unmarshal(list, &conf) // no error, because ADD succeeded with it
	for _, raw := range slices.Backward(conf.Plugins) {
		var plugin struct{ MTU int64 }
		if err := json.Unmarshal(raw, &plugin); err == nil && plugin.MTU >= least {
			return plugin.MTU
		}
	}
	return 0
}

// parse parses a CNI result and returns the index of the pod's interface in it; -1 = it is missing. Interfaces
// without a sandbox belong to the host. If no interface of the name has exactly this netns, parse takes one with a
// different sandbox, because plugins spell the path differently. Results before version 0.3.0 have no interfaces.
func parse(raw json.RawMessage, ifName, netns string) (r *types100.Result, own int, err error) {
	own = -1
	result, err := create.CreateFromBytes(raw)
	if err == nil {
		r, err = types100.NewResultFromResult(result)
	}
	if err != nil {
		return nil, own, err
	}
	for n, i := range r.Interfaces {
		switch {
		case i == nil || i.Name != ifName || i.Sandbox == "":
		case i.Sandbox == netns:
			return r, n, nil
		case own < 0:
			own = n
		}
	}
	return r, own, nil
}

// canonical returns the one spelling of an address that the API accepts. ok is false if the address has none, such
// as ::ffff:10.0.0.1/64, whose family is ambiguous.
func canonical(n net.IPNet) (text string, ok bool) {
	address, _ := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	address = address.Unmap()
	if address.Is4() && bits == net.IPv6len*8 {
		ones -= (net.IPv6len - net.IPv4len) * 8
	}
	prefix := netip.PrefixFrom(address, ones)
	return prefix.String(), prefix.IsValid()
}
