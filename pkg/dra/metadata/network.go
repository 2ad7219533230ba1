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

const maxIPs = resourceapi.NetworkDeviceDataMaxIPs

// NetworkData is what a CNI result, of any version, says of the interface ifName in the
// network namespace at netns: its hardware address, and the IP addresses that are its, or
// of no interface. The addresses are in the canonical form, each once, at most 16. An
// interface without a sandbox is the host's; where none has exactly this netns, one of
// the name in any sandbox is taken, for plugins spell the path in their own way. The
// warnings say what is left out. An error is a result that CNI does not know.
func NetworkData(result json.RawMessage, ifName, netns string) (*resourceapi.NetworkDeviceData, []string, error) {
	r, err := parse(result)
	if err != nil {
		return nil, nil, fmt.Errorf("CNI result: %w", err)
	}
	data := &resourceapi.NetworkDeviceData{InterfaceName: ifName}
	own := find(r.Interfaces, ifName, netns)
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
	if all := len(data.IPs); all > maxIPs {
		data.IPs = data.IPs[:maxIPs]
		warnings = append(warnings, fmt.Sprintf("%d of %d addresses are left out: at most %d are allowed", all-maxIPs, all, maxIPs))
	}
	return data, warnings, nil
}

// MTUOf is what a CNI result says of the interface ifName in the network namespace at
// netns, in bytes; 0 = absent, as before CNI 1.1.0, or below what KubeVirt takes.
func MTUOf(result json.RawMessage, ifName, netns string) int64 {
	r, err := parse(result)
	if err != nil {
		return 0
	}
	own := find(r.Interfaces, ifName, netns)
	if own < 0 || r.Interfaces[own].Mtu < minMTU {
		return 0
	}
	return int64(r.Interfaces[own].Mtu)
}

const minMTU = 68 // ETH_MIN_MTU (include/uapi/linux/if_ether.h)

// hardwareAddress spells it as the kernel does, if it is one of the usual kind.
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

// parse reads a result. One of the versions before 0.3.0 has no interfaces, and becomes
// the empty one if it has no addresses either, which those versions forbid.
func parse(raw json.RawMessage) (*types100.Result, error) {
	var v struct{ CNIVersion string }
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	result, err := create.CreateFromBytes(raw)
	if err != nil {
		return nil, err
	}
	r, err := types100.NewResultFromResult(result)
	if err != nil && slices.Contains([]string{"", "0.1.0", "0.2.0"}, v.CNIVersion) {
		return &types100.Result{}, nil
	}
	return r, err
}

// find gives the place of an interface in a list, -1 = it is not there.
func find(list []*types100.Interface, name, netns string) int {
	exact := slices.IndexFunc(list, func(i *types100.Interface) bool {
		return i != nil && i.Name == name && i.Sandbox == netns && netns != ""
	})
	if exact >= 0 {
		return exact
	}
	return slices.IndexFunc(list, func(i *types100.Interface) bool { return i != nil && i.Name == name && i.Sandbox != "" })
}

// canonical is the one spelling of an address that the API takes; ok is false for an
// address that has none, such as ::ffff:10.0.0.1/64, which is of both families.
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
