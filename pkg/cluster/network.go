// Package cluster tells, from pods and resource claims alone, which device is behind
// which network interface: what Multus wrote into the network-status of a pod, what the agent
// wrote beside it, and what DRA drivers wrote into the status of its claims. API objects in,
// values out.
package cluster

import (
	"encoding/json"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
)

// A Network is one attachment of a pod: a network interface, or a socket.
type Network struct {
	Namespace  string          `json:"namespace"`
	Pod        string          `json:"pod"`
	Node       string          `json:"node,omitempty"` // "" = not scheduled yet
	Network    string          `json:"network,omitempty"`
	Interface  string          `json:"interface,omitempty"`
	MAC        string          `json:"mac,omitempty"`
	IPs        []string        `json:"ips,omitempty"`
	Device                     // in JSON its keys are among these
	Claim      string          `json:"claim,omitempty"`      // ResourceClaim in the pod's namespace
	Driver     string          `json:"driver,omitempty"`     // of the claim's device
	DeviceInfo json.RawMessage `json:"deviceInfo,omitempty"` // as the network-status has it, or the node's record
	FromNode   bool            `json:"fromNode,omitempty"`   // device or problem come from the node's own record
	NotAsked   bool            `json:"notAsked,omitempty"`   // the API names no device, and the node was not asked or did not answer
	Problem    string          `json:"problem,omitempty"`    // why there is no more

	published deviceID // of a claim whose status does not say what device it is
}

// describe takes the device from a device-info map.
func (a *Network) describe(text json.RawMessage) {
	info, err := devinfo.Parse(text)
	if err != nil {
		a.Problem = "device-info: " + err.Error()
		return
	}
	a.DeviceInfo, a.Device = text, DeviceOf(info)
}

// Holders returns the attachments that a device belongs to. The device may be given as a PCI
// address with or without its domain, a vDPA or RDMA device, a representor, a socket, or a
// MAC or IP address. A PF's address also finds its VFs.
func Holders(list []Network, device string) []Network {
	is := Named(device)
	found := []Network{}
	for _, a := range list {
		ips := slices.ContainsFunc(a.IPs, func(ip string) bool { address, _, _ := strings.Cut(ip, "/"); return is(address, ip) })
		if ips || is(append(strings.Split(a.RDMA, ","), a.Device.Device, a.PF, a.PCI, a.Representor, a.MAC)...) {
			found = append(found, a)
		}
	}
	return found
}

// Named returns a function that reports whether one of several names is this device's, in any letter case. A PCI
// address may lack its domain.
func Named(device string) func(names ...string) bool {
	names := []string{device}
	for _, full := range []string{device, "0000:" + device} {
		if address, err := pci.Parse(full); err == nil {
			names = append(names, address.String())
		}
	}
	return func(of ...string) bool {
		return slices.ContainsFunc(of, func(s string) bool {
			return s != "" && slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(s, name) })
		})
	}
}
