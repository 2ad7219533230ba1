package cluster

import (
	"maps"
	"slices"
)

// Deviceless are the nodes of attachments of which the API names no device, sorted. Multus
// copies device information only of networks with a resourceName.
func Deviceless(list []Network) []string {
	nodes := map[string]bool{}
	for n := range list {
		if list[n].Deviceless() {
			nodes[list[n].Node] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// NotAsked marks the attachments of which the API names no device and that are on none of these nodes. It
// returns their nodes, sorted.
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

// Fill takes from a node's records what the API does not say of its attachments, and what is wrong with them there.
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

// Deviceless says that the API names no device of the attachment, and no problem either.
func (a *Network) Deviceless() bool {
	return a.Device.Device == "" && a.Claim == "" && a.Problem == "" && a.Node != ""
}
