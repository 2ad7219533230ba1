package inventory

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"devinfo-cni.io/devinfo/pci"
)

// Slice is the content of a ResourceSlice of the node's pool. The type of package resourceslice would add
// the API's client to programs that ask no API server.
type Slice struct {
	Devices []resourceapi.Device `json:"devices,omitempty"`
}

// maxDevices is how many devices a slice holds in which one has a taint.
const maxDevices = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// Published are devices as they are in ResourceSlices, by name.
type Published map[string]resourceapi.Device

// PublishedIn lists the devices of slices.
func PublishedIn(list []Slice) Published {
	all := Published{}
	for _, s := range list {
		for _, d := range s.Devices {
			all[d.Name] = d
		}
	}
	return all
}

// Slices returns the content of the pool: the devices that are offered, and ours, which claims hold. The
// latter stay as they were last published, except for taints, because the host does not show all facts of a
// device in a pod.
//
// The same devices make the same slices, in the same order. The scheduler looks at one device after the
// other until one meets the class: so the VFs of all PFs take turns, by number, and a class that only one PF
// meets costs little more than one that all meet. VFs of the same numbers share a slice, so that one VF more
// or fewer rewrites only that slice. The first slice also has all devices that are neither VFs nor on one.
func Slices(decisions []Decision, ours map[string]As, last Published) []Slice {
	offered, taints := Published{}, map[string][]resourceapi.DeviceTaint{}
	for n := range decisions {
		c := &decisions[n]
		taints[c.Device.Name] = c.taints()
		if c.Why == "" {
			offered[c.Device.Name] = c.device()
		}
	}
	for name, as := range ours {
		d, known := last[name]
		_, isOffered := offered[name]
		if !known || as == Shared && isOffered { // the host's interface of a shared device is not in a pod
			continue
		}
		d = *d.DeepCopy()
		var here bool
		if d.Taints, here = taints[name]; !here {
			d.Taints = taint(TaintGone)
		}
		offered[name] = d
	}
	return arrange(offered)
}

// Same reports whether two pools have the same content.
func Same(a, b []Slice) bool { return equality.Semantic.DeepEqual(a, b) }

func taint(key string) []resourceapi.DeviceTaint {
	return []resourceapi.DeviceTaint{{Key: key, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
}

func (c *Decision) taints() []resourceapi.DeviceTaint {
	switch {
	case c.Why != "":
		return taint(TaintNotOffered)
	case c.unknown:
		return taint(TaintUnknown)
	case c.Device.NoCarrier:
		return taint(TaintNoCarrier)
	}
	return nil
}

// device is a device as it is offered.
func (c *Decision) device() resourceapi.Device {
	d := resourceapi.Device{Name: c.Device.Name, Attributes: maps.Clone(c.Device.Attributes), Taints: c.taints()}
	maps.DeleteFunc(d.Attributes, func(name resourceapi.QualifiedName, _ resourceapi.DeviceAttribute) bool {
		return c.rule.published != nil && !slices.Contains(c.rule.published, name)
	})
	maps.Copy(d.Attributes, c.rule.attributes)
	if name, id := c.rule.ResourceName, c.Device.ID(); name != "" {
		d.Attributes[ResourceName] = resourceapi.DeviceAttribute{StringValue: &name}
		d.Attributes[DeviceID] = resourceapi.DeviceAttribute{StringValue: &id}
	}
	if c.As == Shared {
		d.AllowMultipleAllocations = new(true)
		d.Capacity = c.rule.capacity()
	}
	return d
}

// capacity gives each capacity a default. Without one, a claim that does not name a capacity takes all of it.
func (r *rule) capacity() map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	all := OneOf(cmp.Or(r.Attachments, DefaultAttachments))
	if r.Bandwidth != nil {
		none := *resource.NewQuantity(0, resource.DecimalSI)
		all[Bandwidth] = resourceapi.DeviceCapacity{
			Value: r.Bandwidth.Quantity, RequestPolicy: &resourceapi.CapacityRequestPolicy{
				Default: &none, ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: &none},
			},
		}
	}
	return all
}

// OneOf is the capacity of a device of which each claim takes exactly one attachment.
func OneOf(attachments int64) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	return map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{Attachments: {
		Value:         *resource.NewQuantity(attachments, resource.DecimalSI),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: &one, ValidValues: []resource.Quantity{one}},
	}}
}

// place is where a device stands in the pool.
type place struct {
	part     int    // a slice, or several if they are full
	number   int    // of the VF that it is or is on; -1 = neither
	function string // the name of its PF, or ""
	name     string
}

// arrange puts devices into slices.
func arrange(devices Published) (list []Slice) {
	places := make([]place, 0, len(devices))
	pfs := map[string]bool{} // that have VFs
	for _, d := range devices {
		p := place{name: d.Name, number: -1}
		if pf, err := pci.Parse(Text(d, AttrPFPCIBusID)); err == nil {
			p.function = functionName(pf.String())
		}
		if n := d.Attributes[AttrVFIndex].IntValue; n != nil {
			p.number = int(*n)
			pfs[p.function] = true
		}
		places = append(places, p)
	}
	// How many VFs of each PF a slice has; the first has half of it, beside all else. PFs count
	// as a power of two, so that one more or fewer seldom moves all others' VFs.
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
