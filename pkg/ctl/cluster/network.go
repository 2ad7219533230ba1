// Package cluster finds the device behind each network interface of pods in API objects alone: in the
// network-status that Multus writes, in the annotation of devinfo-agent, and in the claim status that DRA
// drivers write.
package cluster

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/view"
)

// A Network is one attachment of a pod: a network interface, or a socket.
type Network struct {
	Namespace   string          `json:"namespace"`
	Pod         string          `json:"pod"`
	Node        string          `json:"node,omitempty"` // "" = not scheduled yet
	Network     string          `json:"network,omitempty"`
	Interface   string          `json:"interface,omitempty"`
	MAC         string          `json:"mac,omitempty"`
	IPs         []string        `json:"ips,omitempty"`
	view.Device                 // inlined in JSON
	Claim       string          `json:"claim,omitempty"`      // ResourceClaim in the pod's namespace
	Driver      string          `json:"driver,omitempty"`     // driver of the claim's device
	DeviceInfo  json.RawMessage `json:"deviceInfo,omitempty"` // from the network-status or the node's record
	FromNode    bool            `json:"fromNode,omitempty"`   // device or problem come from the node's own record
	NotAsked    bool            `json:"notAsked,omitempty"`   // the API has no device, and the node was not queried or did not answer
	Problem     string          `json:"problem,omitempty"`    // why information is missing
	Withheld    []view.Withheld `json:"withheld,omitempty"`   // what containers do not get of the device, by the node's record
	Requests    []string        `json:"-"`                    // extended resources that containers of the pod request
	Mounts      []string        `json:"-"`                    // directories of the node that the pod mounts itself
	Waits       bool            `json:"-"`                    // the pod has a node, and no network-status yet
	recorded    string          // representor's name at ADD, if the node has another now
}

// Holders returns the attachments that have a device. The name is a PCI address with or without domain, a vDPA
// or RDMA device, a representor, a socket, or a MAC or IP address. The address of a PF also finds its VFs.
func Holders(list []Network, device string) []Network {
	is := view.Named(device)
	return slices.DeleteFunc(slices.Clone(list), func(a Network) bool {
		ips := slices.ContainsFunc(a.IPs, func(ip string) bool { address, _, _ := strings.Cut(ip, "/"); return is(address, ip) })
		return !ips && !is(append(strings.Split(a.RDMA, ","), a.Device.Device, a.PF, a.PCI, a.Representor, a.MAC)...)
	})
}

// Former returns the attachments whose representor had a name at ADD and has another now, by [Fill].
func Former(list []Network, representor string) []Network {
	is := view.Named(representor)
	return slices.DeleteFunc(slices.Clone(list), func(a Network) bool { return !is(a.recorded) })
}

// NotAsked marks attachments without a device in the API, except those of the node that answered. It returns the sorted
// nodes of the marked attachments.
func NotAsked(list []Network, answered string) (nodes []string) {
	for n := range list {
		a := &list[n]
		if a.NotAsked = a.Deviceless() && a.Node != answered; a.NotAsked {
			nodes = append(nodes, a.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// A Record is an attachment as devinfoctl list -o json prints it on a node.
type Record struct {
	Network
	State string    `json:"state"`
	Since time.Time `json:"since"`
	Why   string    `json:"why"` // more about the state, or why ADD found no device
}

// Fill adds what a node has on record of its attachments: to those without a device in the API the device and the problem,
// and to all what containers do not get of it, and a state that is not as after ADD. A former sandbox of the pod may be on
// record too.
func Fill(list []Network, node string, records []Record) {
	type key struct{ namespace, pod, ifName string }
	by := map[key]Record{}
	former := map[string]int{"Deleting": -1, "Undeleted": -1, "Stale": -1}
	slices.SortStableFunc(records, func(a, b Record) int { return cmp.Or(former[a.State]-former[b.State], a.Since.Compare(b.Since)) })
	for _, r := range records { // that of the pod's present sandbox is the last
		by[key{r.Namespace, r.Pod, r.Interface}] = r
	}
	for n := range list {
		a := &list[n]
		r, there := by[key{a.Namespace, a.Pod, a.Interface}]
		if !there {
			continue
		}
		if r.Representor != "" && a.Device.Device == r.Device.Device {
			a.recorded, a.Representor = a.Representor, r.Representor // programs may have renamed it since ADD
		}
		switch {
		case a.Deviceless():
			a.Device, a.DeviceInfo, a.Problem = r.Device, r.DeviceInfo, r.Why
			if info, err := devinfo.Parse(r.DeviceInfo); err == nil {
				a.recorded = view.Of(info).Representor
			}
			a.FromNode = r.Device.Device != "" || r.Why != ""
		case a.Problem == "" && r.Why != "" && r.State != "Ok":
			a.Problem = Problem("state", "node", node, "state", r.State, "why", r.Why)
		}
		mounts := func(w view.Withheld) bool {
			return slices.ContainsFunc(a.Mounts, func(dir string) bool {
				return w.Mounts != "" && strings.HasPrefix(below(w.Mounts), below(dir))
			})
		}
		a.Withheld = slices.DeleteFunc(r.Withheld, mounts)
	}
}

// below returns the prefix of the paths below a directory of a node, where /var/run is /run.
func below(dir string) string {
	dir = strings.TrimSuffix(dir, "/") + "/"
	if rest, is := strings.CutPrefix(dir, "/var/run/"); is {
		return "/run/" + rest
	}
	return dir
}

// Deviceless reports whether a node may know a device that the API does not contain: the pod is on a node, and the
// attachment has no device, claim or problem.
func (n *Network) Deviceless() bool {
	return n.Device.Device == "" && n.Claim == "" && n.Problem == "" && n.Node != ""
}

// byClaim returns the attachments in a claim's status (KEP-4817): devices with networkData, with a configured
// network, or with identified device data. A device whose network is not attached yet is included with the
// reason. The caller sets the pod.
func byClaim(claim *resourceapi.ResourceClaim) (list []Network) {
	for n := range claim.Status.Devices {
		d := &claim.Status.Devices[n]
		a := Network{Namespace: claim.Namespace, Claim: claim.Name, Driver: d.Driver, Network: networkOf(claim, d)}
		if data := d.NetworkData; data != nil {
			a.Interface, a.MAC, a.IPs = data.InterfaceName, data.HardwareAddress, data.IPs
		}
		if ready := meta.FindStatusCondition(d.Conditions, "Ready"); ready != nil && ready.Status != "True" {
			a.Problem = Problem("claim-not-ready", "reason", ready.Reason, "message", ready.Message)
		}
		if d.Data != nil {
			a.identify(d.Data.Raw)
		}
		if d.NetworkData != nil || a.Network != "" || a.Device.Device != "" {
			list = append(list, a)
		}
	}
	return list
}

// identify sets the device from the device data that cni-dra-driver writes into the claim status: the key
// [view.Key], else a CNI result (SPEC.md 1.1.0, section 5). It ignores data of other drivers.
func (n *Network) identify(data []byte) {
	var result struct {
		Device     view.Device `json:"devinfo-cni.io/device"`
		CNIVersion string
		Interfaces []struct{ Name, Sandbox, PCIID, SocketPath string }
	}
	if json.Unmarshal(data, &result) != nil {
		return
	}
	if result.Device.Device != "" {
		n.Device = result.Device
		return
	}
	for _, i := range result.Interfaces {
		if result.CNIVersion == "" || i.Sandbox == "" || i.Name != n.Interface {
			continue
		}
		if n.Device.Device = cmp.Or(i.PCIID, i.SocketPath); i.PCIID != "" {
			n.Type = "pci"
		}
	}
}

// networkOf returns the name of the CNI network in the driver's CNIConfig, which the class or the claim
// contains; "" if there is none.
func networkOf(claim *resourceapi.ResourceClaim, d *resourceapi.AllocatedDeviceStatus) string {
	if claim.Status.Allocation == nil {
		return ""
	}
	given := claim.Status.Allocation.Devices
	for _, r := range given.Results {
		if r.Driver != d.Driver || r.Pool != d.Pool || r.Device != d.Device || !ptr.Equal((*string)(r.ShareID), d.ShareID) {
			continue
		}
		for _, c := range resourceclaim.ConfigForResult(given.Config, r) {
			var cni struct{ Config struct{ Name string } }
			if c.Opaque.Driver == d.Driver && json.Unmarshal(c.Opaque.Parameters.Raw, &cni) == nil && cni.Config.Name != "" {
				return cni.Config.Name
			}
		}
	}
	return ""
}
