package sysfs

import (
	"path"

	"devinfo-cni.io/devinfo/pci"
)

// Virtio is a device on the virtio bus, /sys/bus/virtio/devices/virtioN. Its
// network interface is at virtioN/net, never at the PCI function's own net.
type Virtio struct {
	Name string
	PCI  *pci.Address // the nearest PCI function above; nil = none (a vDPA simulator)
	VDPA string       // the vDPA device right above, on virtio_vdpa; "" = none, or it is beside
}

// Virtio gives the virtio device of a name; ok is false when there is none.
func (f *FS) Virtio(name string) (v Virtio, ok bool, err error) {
	d := f.device("virtio", name)
	if d.gone {
		return v, false, d.err
	}
	v = Virtio{Name: name, PCI: above(d.at)}
	parent := path.Dir(d.at)
	vdpa := f.device("vdpa", path.Base(parent))
	if !vdpa.gone && vdpa.at == parent {
		v.VDPA = path.Base(parent)
	}
	return v, vdpa.err == nil, vdpa.err
}

// VirtioMAC returns the hardware address of a virtio device's interface, as the kernel
// prints it; ok is false if the interface is not visible from here.
func (f *FS) VirtioMAC(name string) (mac string, ok bool, err error) {
	d := f.device("virtio", name)
	if ports := d.names("net"); len(ports) > 0 {
		mac = d.text("net/" + ports[0] + "/address")
	}
	return mac, mac != "", d.err
}
