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
		if list[n].deviceless() {
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
		if a.NotAsked = a.deviceless() && !slices.Contains(answered, a.Node); a.NotAsked {
			nodes = append(nodes, a.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Fill takes from a node's records, as devinfoctl list -o json prints them there, what the API does
// not say of its attachments.
func Fill(list []Network, node string, records []Network) {
	type key struct{ namespace, pod, ifName string }
	by := map[key]Network{}
	for _, r := range records {
		if r.Device.Device != "" {
			by[key{r.Namespace, r.Pod, r.Interface}] = r
		}
	}
	for n := range list {
		a := &list[n]
		r, there := by[key{a.Namespace, a.Pod, a.Interface}]
		if there && a.Node == node && a.deviceless() {
			a.Device, a.FromNode = r.Device, true
		}
	}
}

func (a *Network) deviceless() bool {
	return a.Device.Device == "" && a.Claim == "" && a.Problem == "" && a.Node != ""
}
