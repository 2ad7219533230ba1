package cluster

import (
	"cmp"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/devinfo"
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
	Device
	generation int64 // of the pool: the highest counts
}

// Published is what a node has published of a device.
func Published(d *resourceapi.Device) (of Device) {
	text := func(name resourceapi.QualifiedName) string {
		if value := d.Attributes[name].StringValue; value != nil {
			return *value
		}
		return ""
	}
	if of.Device = text(busIDAttribute); of.Device != "" {
		of.Type = string(devinfo.TypePCI)
	}
	of.PF, of.Representor, of.RDMA = text(pfAttribute), text(representorAttribute), text(rdmaAttribute)
	return of
}

// Or takes what is lacking from what the device's node has published. What the CNI result says is of
// the attachment itself, and counts more.
func (d Device) Or(published Device) Device {
	if d.Device != "" && d.Device != published.Device {
		return d
	}
	if published.Device != "" {
		d.Type, d.Device = published.Type, published.Device
	}
	d.PF, d.Representor, d.RDMA = cmp.Or(d.PF, published.PF), cmp.Or(d.Representor, published.Representor), cmp.Or(d.RDMA, published.RDMA)
	return d
}
