package devices

import (
	"io/fs"
	"maps"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"devinfo-cni.io/pkg/dra/devices/inventory"
)

// numaLists replaces the attribute numaNode of devices by a list if [Options].NUMANode selects that. Rules and records
// always have the number, so that they outlive a change of the option.
func (n *Node) numaLists(list []resourceapi.Device) []resourceapi.Device {
	known := map[int64]resourceapi.DeviceAttribute{} // a thousand VFs are on few nodes
	for i := range list {
		number, ok := list[i].Attributes[inventory.NUMANode]
		if !ok || number.IntValue == nil || n.NUMANode != deviceattribute.ListAttribute {
			continue
		}
		node := *number.IntValue
		if _, ok := known[node]; !ok {
			known[node] = n.numaList(node)
		}
		list[i].Attributes = maps.Clone(list[i].Attributes)
		list[i].Attributes[inventory.NUMANode] = known[node]
	}
	return list
}

// numaList returns a NUMA node, and after it the other nodes of its socket that are nearest to it (KEP-6072).
func (n *Node) numaList(node int64) resourceapi.DeviceAttribute {
	// More values would exceed the API's limit for a device that has the most attributes.
	const most = 1 + resourceapi.ResourceSliceMaxAttributeValuesPerDevice - resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice
	list := []int64{node}
	if n.Finder != nil {
		if sys, ok := n.Finder.Sys.Files().(fs.ReadLinkFS); ok {
			a, err := deviceattribute.GetNUMANodeAttribute(int(node), deviceattribute.ListAttribute, deviceattribute.WithFS(sys))
			if err == nil {
				list = a.Value.IntValues
			}
		}
	}
	return resourceapi.DeviceAttribute{IntValues: list[:min(len(list), most)]}
}
