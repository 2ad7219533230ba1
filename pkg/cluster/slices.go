package cluster

import (
	"cmp"

	resourceapi "k8s.io/api/resource/v1"
)

// The attributes of a device that stand for what a device-info file says. The first is
// Kubernetes' own, of any driver; docs/dra/inventory.md has all of cni-dra-driver.
const (
	busIDAttribute       = "resource.kubernetes.io/pciBusID"
	pfAttribute          = "devinfo-cni.io/pfPCIBusID"
	representorAttribute = "devinfo-cni.io/representor"
	rdmaAttribute        = "devinfo-cni.io/rdmaDevice"
)

type deviceID struct{ driver, pool, name string }

// offered is what a node has published of a device.
type offered struct {
	generation                     int64 // of the pool: the highest counts
	address, pf, representor, rdma string
}

func publishedAs(d *resourceapi.Device, generation int64) offered {
	text := func(name resourceapi.QualifiedName) string {
		if value := d.Attributes[name].StringValue; value != nil {
			return *value
		}
		return ""
	}
	return offered{generation, text(busIDAttribute), text(pfAttribute), text(representorAttribute), text(rdmaAttribute)}
}

// fill takes the device from what its node has published. What the CNI result says is of
// the attachment itself, and counts more.
func (a *Attachment) fill(o offered) {
	if a.Device != "" && a.Device != o.address {
		return
	}
	if o.address != "" {
		a.Type, a.Device = "pci", o.address
	}
	a.PF, a.Representor, a.RDMA = cmp.Or(a.PF, o.pf), cmp.Or(a.Representor, o.representor), cmp.Or(a.RDMA, o.rdma)
}
