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

// NetworkData is what a CNI result, of any version, says of the interface ifName in the
// network namespace at netns: its hardware address, and the IP addresses that are its, or
// of no interface. The addresses are in the canonical form, each once, at most 16. The
// warnings say what is left out. An error is a result that CNI does not know.
func NetworkData(result json.RawMessage, ifName, netns string) (*resourceapi.NetworkDeviceData, []string, error) {
	r, own, err := parse(result, ifName, netns)
	if err != nil {
		return nil, nil, fmt.Errorf("CNI result: %w", err)
	}
	data := &resourceapi.NetworkDeviceData{InterfaceName: ifName}
	var warnings []string
	if own >= 0 {
		if data.HardwareAddress, err = hardwareAddress(r.Interfaces[own].Mac); err != nil {
			warnings = append(warnings, err.Error())
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

// MTUOf is the MTU in bytes that a CNI result has for the interface ifName in the network namespace
// at netns; 0 = absent, as before CNI 1.1.0, or below what KubeVirt takes.
func MTUOf(result json.RawMessage, ifName, netns string) int64 {
	const least = 68 // ETH_MIN_MTU (include/uapi/linux/if_ether.h)
	r, own, err := parse(result, ifName, netns)
	if err != nil || own < 0 || r.Interfaces[own].Mtu < least {
		return 0
	}
	return int64(r.Interfaces[own].Mtu)
}

// hardwareAddress spells a hardware address of a usual length as the kernel does.
func hardwareAddress(text string) (string, error) {
	if mac, err := net.ParseMAC(text); err == nil {
		return mac.String(), nil
	}
	const limit = resourceapi.NetworkDeviceDataHardwareAddressMaxLength
	if len(text) > limit {
		return "", fmt.Errorf("hardwareAddress is left out: it has %d bytes, at most %d are allowed", len(text), limit)
	}
	return text, nil
}

// parse returns a result, with the index of the pod's interface, -1 = it is not in the result.
// An interface without a sandbox is the host's. If none has exactly this netns, one of the name in
// any sandbox is taken: plugins spell the path in their own way.
//
// Before 0.3.0 a result has no interfaces; without addresses, which those versions forbid, it
// becomes an empty one.
func parse(raw json.RawMessage, ifName, netns string) (r *types100.Result, own int, err error) {
	var v struct{ CNIVersion string }
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, 0, err
	}
	result, err := create.CreateFromBytes(raw)
	if err != nil {
		return nil, 0, err
	}
	r, err = types100.NewResultFromResult(result)
	if err != nil && slices.Contains([]string{"", "0.1.0", "0.2.0"}, v.CNIVersion) {
		return &types100.Result{}, -1, nil
	} else if err != nil {
		return nil, 0, err
	}
	own = -1
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

// canonical is the one spelling of an address that the API takes; false = it has none, such as
// ::ffff:10.0.0.1/64, which is of both families.
func canonical(n net.IPNet) (text string, ok bool) {
	address, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return "", false
	}
	address = address.Unmap()
	if address.Is4() && bits == net.IPv6len*8 {
		ones -= (net.IPv6len - net.IPv4len) * 8
	}
	prefix := netip.PrefixFrom(address, ones)
	return prefix.String(), prefix.IsValid()
}
