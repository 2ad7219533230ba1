package inventory

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"devinfo-cni.io/pkg/core/journal"
)

// Slice is the content of a ResourceSlice of the node's pool. The type of package resourceslice would add a client
// of the API to programs that do not use it.
type Slice struct {
	Devices []resourceapi.Device `json:"devices,omitempty"`
}

// Published are the devices in ResourceSlices, by name.
type Published map[string]resourceapi.Device

// Sharing returns how a published device is offered.
func Sharing(d resourceapi.Device) journal.SharingMode {
	if d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations {
		return journal.Shared
	}
	return journal.Exclusive
}

// sharing returns how the device of that name is offered, or "" if there is none.
func (p Published) sharing(name string) journal.SharingMode {
	if d, there := p[name]; there {
		return Sharing(d)
	}
	return ""
}

// Pool returns the devices to publish: the offered ones, and ours, which claims hold. The latter keep their last published
// attributes, but not their taints, because the host cannot read all facts of a device in a pod.
func Pool(decisions []*Decision, ours Published) Published {
	pool := Published{}
	for name, d := range ours {
		d.Taints = taint(TaintGone)
		pool[name] = d
	}
	for _, c := range decisions {
		d, held := pool[c.Device.Name]
		if c.Why == "" && (!held || Sharing(d) == journal.Shared) { // an offered shared device is still on the host, so its facts are current
			d, held = c.device(), true
		}
		if d.Taints = c.taints(); held {
			pool[c.Device.Name] = d
		}
	}
	return pool
}

func taint(key string) []resourceapi.DeviceTaint {
	return []resourceapi.DeviceTaint{{Key: key, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
}

func (c *Decision) taints() []resourceapi.DeviceTaint {
	switch {
	case c.Why != "":
		return taint(TaintNotOffered)
	case c.unknown:
		return taint(TaintAllocationUnknown)
	case c.Device.NoCarrier:
		return taint(TaintNoCarrier)
	}
	return nil
}

func (c *Decision) device() resourceapi.Device {
	d := resourceapi.Device{Name: c.Device.Name, Attributes: maps.Clone(c.Device.Attributes)}
	maps.DeleteFunc(d.Attributes, func(name resourceapi.QualifiedName, _ resourceapi.DeviceAttribute) bool {
		return c.rule.published != nil && !slices.Contains(c.rule.published, name)
	})
	maps.Copy(d.Attributes, c.rule.attributes)
	if name, id := c.rule.ResourceName, c.Device.ID(); name != "" {
		d.Attributes[ResourceName] = resourceapi.DeviceAttribute{StringValue: &name}
		d.Attributes[DeviceID] = resourceapi.DeviceAttribute{StringValue: &id}
	}
	if c.Sharing == journal.Shared {
		d.AllowMultipleAllocations = new(true)
		d.Capacity = c.rule.capacity()
	}
	return d
}

// capacity returns the capacities, each with a default, because a claim would otherwise get all of a capacity that
// it does not name.
func (r *rule) capacity() map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	all := OnePerClaim(cmp.Or(r.Attachments, DefaultAttachments))
	if !r.bandwidth.IsZero() {
		none := *resource.NewQuantity(0, resource.DecimalSI)
		all[Bandwidth] = resourceapi.DeviceCapacity{
			Value: r.bandwidth, RequestPolicy: &resourceapi.CapacityRequestPolicy{
				Default: &none, ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: &none},
			},
		}
	}
	return all
}

// OnePerClaim returns a capacity from which each claim takes exactly one attachment.
func OnePerClaim(attachments int64) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	return map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{Attachments: {
		Value:         *resource.NewQuantity(attachments, resource.DecimalSI),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: &one, ValidValues: []resource.Quantity{one}},
	}}
}

// place is the position of a device in the pool.
type place struct {
	part     int    // number of the device's group; each group begins a new slice
	number   int    // number of the VF that it is or is on; -1 = neither
	function string // address of its PF, or ""
	name     string
}

// Slices returns the content of the pool. The same devices result in the same slices, in the same order. The scheduler
// checks one device after another until one meets the class. Slices therefore interleaves the VFs of all PFs, by VF number,
// so that a class for one PF costs the scheduler little more than a class for all PFs. VFs with the same numbers share a
// slice, so that one more or one less VF rewrites only that slice. The first slice also has all devices that are neither a
// VF nor on a VF.
func Slices(devices Published) (list []Slice) {
	const maxDevices = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures // in a slice that has a tainted device
	places := make([]place, 0, len(devices))
	pfs := map[string]bool{} // PFs with VFs
	for _, d := range devices {
		p := place{name: d.Name, number: -1, function: Text(d.Attributes, AttrPFPCIBusID)}
		if n := d.Attributes[AttrVFIndex].IntValue; n != nil {
			p.number = int(*n)
			pfs[p.function] = true
		}
		places = append(places, p)
	}
	// each is the number of VFs of each PF in a slice. The first slice has half as many, because it also has the other
	// devices. The number of PFs is rounded up to a power of two, so that adding or removing a PF seldom moves the VFs
	// of other PFs.
	each := max(1, maxDevices>>bits.Len(uint(max(1, len(pfs))-1)))
	for n := range places {
		if number := places[n].number; number >= each/2 {
			places[n].part = 1 + (number-each/2)/each
		}
	}
	slices.SortFunc(places, func(p, q place) int {
		return cmp.Or(cmp.Compare(p.part, q.part), cmp.Compare(p.number, q.number), cmp.Compare(p.function, q.function), cmp.Compare(p.name, q.name))
	})
	for n, p := range places {
		full := len(list) > 0 && len(list[len(list)-1].Devices) == maxDevices
		if n == 0 || full || p.part != places[n-1].part {
			list = append(list, Slice{})
		}
		s := &list[len(list)-1]
		s.Devices = append(s.Devices, devices[p.name])
	}
	return list
}
