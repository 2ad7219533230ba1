package cluster

import (
	"cmp"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/devinfo"
)

// DeviceKey is where cni-dra-driver's data in the status of a claim say which device it is, beside
// the keys of the CNI result. Of a device without a network they have this key alone.
const DeviceKey = "devinfo-cni.io/device"

// A Device is what the status of a claim says of a device: as much as is shown of it, so that no
// ResourceSlice has to be read.
type Device struct {
	Type        string `json:"type,omitempty"`        // "pci", "vdpa", "vhost-user" or "memif"
	Device      string `json:"device,omitempty"`      // PCI address, vDPA device or path of a socket
	Path        string `json:"path,omitempty"`        // of a vDPA device's node
	PCI         string `json:"pci,omitempty"`         // address behind a vDPA device
	PF          string `json:"pf,omitempty"`          // its PCI address
	Representor string `json:"representor,omitempty"` // interface
	RDMA        string `json:"rdma,omitempty"`        // devices, comma-joined
}

// DeviceOf takes it from device information.
func DeviceOf(info *devinfo.Info) Device {
	of := Device{Type: string(info.Type)}
	switch d := info.Device().(type) {
	case *devinfo.PCI:
		of.Device, of.PF, of.Representor, of.RDMA = d.Address, d.PFAddress, d.Representor, d.RDMADevice
	case *devinfo.VDPA:
		of.Device, of.Path, of.PCI, of.PF, of.Representor = cmp.Or(d.ParentDevice, d.Path), d.Path, d.Address, d.PFAddress, d.Representor
	case *devinfo.VhostUser:
		of.Device = d.Path
	case *devinfo.Memif:
		of.Device = d.Path
	}
	return of
}

// The attributes of a device that stand for what a device-info file says. The first is
// Kubernetes' own, of any driver; docs/dra/inventory.md has all of cni-dra-driver.
const (
	busIDAttribute       = "resource.kubernetes.io/pciBusID"
	pfAttribute          = "devinfo-cni.io/pfPCIBusID"
	representorAttribute = "devinfo-cni.io/representor"
	rdmaAttribute        = "devinfo-cni.io/rdmaDevice"
)

type deviceID struct{ driver, pool, name string }

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
