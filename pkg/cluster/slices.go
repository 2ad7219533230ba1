package cluster

import (
	"cmp"

	resourceapi "k8s.io/api/resource/v1"
)

// The attributes of a device that stand for what a device-info file says. The first is
// Kubernetes' own, of any driver; docs/inventory.md has all of cni-dra-driver.
const (
	busIDAttribute       = "resource.kubernetes.io/pciBusID"
	pfAttribute          = "devinfo-cni.io/pfPCIBusID"
	representorAttribute = "devinfo-cni.io/representor"
	rdmaAttribute        = "devinfo-cni.io/rdmaDevice"
)

type deviceID struct{ driver, pool, name string }

type offered struct {
	generation int64 // of the pool: the highest counts
	attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
}

// published are the devices of slices.
func published(slices []resourceapi.ResourceSlice) map[deviceID]offered {
	all := map[deviceID]offered{}
	for _, s := range slices {
		for _, d := range s.Spec.Devices {
			id := deviceID{s.Spec.Driver, s.Spec.Pool.Name, d.Name}
			if before, there := all[id]; !there || before.generation < s.Spec.Pool.Generation {
				all[id] = offered{s.Spec.Pool.Generation, d.Attributes}
			}
		}
	}
	return all
}

// fill takes the device from what its node has published. What the CNI result says is of
// the attachment itself, and counts more.
func (a *Attachment) fill(o offered) {
	text := func(name resourceapi.QualifiedName) string {
		if value := o.attributes[name].StringValue; value != nil {
			return *value
		}
		return ""
	}
	address := text(busIDAttribute)
	if a.Device != "" && a.Device != address {
		return
	}
	if address != "" {
		a.Type, a.Device = "pci", address
	}
	a.PF, a.Representor, a.RDMA = cmp.Or(a.PF, text(pfAttribute)), cmp.Or(a.Representor, text(representorAttribute)), cmp.Or(a.RDMA, text(rdmaAttribute))
}
