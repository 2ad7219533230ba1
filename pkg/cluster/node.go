package cluster

import (
	"maps"
	"slices"
)

// Deviceless returns the sorted nodes of attachments without a device in the API. Multus writes device information
// only for networks with a resourceName.
func Deviceless(list []Network) []string {
	nodes := map[string]bool{}
	for n := range list {
		if list[n].Deviceless() {
			nodes[list[n].Node] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// NotAsked marks attachments without a device in the API if their node did not answer. It returns the sorted nodes of
// the marked attachments.
func NotAsked(list []Network, answered []string) (nodes []string) {
	for n := range list {
		a := &list[n]
		if a.NotAsked = a.Deviceless() && !slices.Contains(answered, a.Node); a.NotAsked {
			nodes = append(nodes, a.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// A Record is an attachment as devinfoctl list -o json prints it on a node.
type Record struct {
	Network
	Why string `json:"why"` // more about the state, or why ADD found no device
}

// Fill adds the device and the problem that a node has on record to attachments without a device in the API.
func Fill(list []Network, node string, records []Record) {
	type key struct{ namespace, pod, ifName string }
	by := map[key]Record{}
	for _, r := range records {
		by[key{r.Namespace, r.Pod, r.Interface}] = r
	}
	for n := range list {
		a := &list[n]
		r, there := by[key{a.Namespace, a.Pod, a.Interface}]
		if there && a.Node == node && a.Deviceless() {
			a.Device, a.DeviceInfo, a.Problem = r.Device, r.DeviceInfo, r.Why
			a.FromNode = r.Device.Device != "" || r.Why != ""
		}
	}
}

// Deviceless reports whether a node may know a device that the API does not contain: the pod is on a node, and the
// attachment has no device, claim or problem.
func (a *Network) Deviceless() bool {
	return a.Device.Device == "" && a.Claim == "" && a.Problem == "" && a.Node != ""
}
