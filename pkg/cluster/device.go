package cluster

import (
	"cmp"

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
