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

// A Slice is what a ResourceSlice of the node's pool has. That of package resourceslice would
// bring the whole client of the API into programs that ask no API server.
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

// Slices returns the content of the pool: the devices that are offered, and ours, which
// claims hold. The latter stay as they were last published, except for taints: what
// the host shows of a device in a pod is not the whole truth.
//
// The same devices make the same slices, in the same order. The scheduler looks at one device
// after the other until one meets the class: so the VFs of all PFs take turns, by number, and a
// class that only one PF's meet costs it little more than one that all do. VFs of the same
// numbers share a slice, so that one VF more or fewer rewrites only that slice; the first slice
// has all devices that are neither VFs nor on one, too.
func Slices(decisions []Decision, ours map[string]As, last Published) []Slice {
	offered := Published{}
	here := map[string]*Decision{}
	for n := range decisions {
		c := &decisions[n]
		here[c.Device.Name] = c
		if c.Why == "" {
			offered[c.Device.Name] = c.device()
		}
	}
	for name, as := range ours {
		d, known := last[name]
		c := here[name]
		if !known || as == Shared && c != nil && c.Why == "" {
			continue // what pods share does not move
		}
		d = *d.DeepCopy()
		d.Taints = taint(TaintGone)
		if c != nil {
			d.Taints = c.taints()
		}
		offered[name] = d
	}
	return arrange(offered)
}

// Same says whether two pools have the same content: then there is nothing to publish.
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

// Evict has a taint of devices in slices, which are not published yet, end their pods.
func Evict(list []Slice, key string) {
	for _, s := range list {
		for _, d := range s.Devices {
			for n := range d.Taints {
				if d.Taints[n].Key == key {
					d.Taints[n].Effect = resourceapi.DeviceTaintEffectNoExecute
				}
			}
		}
	}
}

// device is what is published of a device that is offered.
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

// capacity gives each capacity a default: without one, a claim that does not name it would
// take all of it.
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

// OneOf is the capacity of a device of which each claim takes one attachment: it can ask neither
// for less nor for more.
func OneOf(attachments int64) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	return map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{Attachments: {
		Value:         *resource.NewQuantity(attachments, resource.DecimalSI),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: &one, ValidValues: []resource.Quantity{one}},
	}}
}

// A place is where a device stands in the pool.
type place struct {
	part     int    // a slice, or several if they are full
	number   int    // of the VF that it is or is on; noNumber = neither
	function string // the name of its PF, or ""
	name     string
}

const noNumber = -1

func placeOf(d *resourceapi.Device) place {
	p := place{name: d.Name, number: noNumber}
	if pf, err := pci.Parse((&Device{Attributes: d.Attributes}).text(AttrPFPCIBusID)); err == nil {
		p.function = functionName(pf.String())
	}
	if n := d.Attributes[AttrVFIndex].IntValue; n != nil {
		p.number = int(*n)
	}
	return p
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.part, q.part), cmp.Compare(p.number, q.number), cmp.Compare(p.function, q.function), cmp.Compare(p.name, q.name))
}

// arrange puts devices into slices.
func arrange(devices Published) (list []Slice) {
	places := make([]place, 0, len(devices))
	pfs := map[string]bool{} // that have VFs
	for _, d := range devices {
		p := placeOf(&d)
		places = append(places, p)
		if p.number != noNumber {
			pfs[p.function] = true
		}
	}
	// How many VFs of each PF a slice has; the first has half of it, beside all else. PFs count
	// as a power of two, so that one more or fewer seldom moves all others' VFs.
	each := max(1, maxDevices>>bits.Len(uint(max(1, len(pfs))-1)))
	for n := range places {
		if number := places[n].number; number >= each/2 {
			places[n].part = 1 + (number-each/2)/each
		}
	}
	slices.SortFunc(places, place.compare)
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
