package sysfs

import (
	"path"

	"devinfo-cni.io/devinfo/pci"
)

// Virtio is a device on the virtio bus, /sys/bus/virtio/devices/virtioN. Its network interface is in
// virtioN/net, not in the directory net of the PCI function.
type Virtio struct {
	Name string
	PCI  *pci.Address // nearest PCI function above; nil = none (a vDPA simulator)
	VDPA string       // vDPA device directly above, on virtio_vdpa; "" = none, or not directly above
}

// Virtio returns the virtio device with the given name. ok is false if it does not exist.
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

// VirtioMAC returns the hardware address of a virtio device's interface, as the kernel prints it. ok is false
// if the interface is in another network namespace.
func (f *FS) VirtioMAC(name string) (mac string, ok bool, err error) {
	d := f.device("virtio", name)
	if ports := d.names("net"); len(ports) > 0 {
		mac = d.text("net/" + ports[0] + "/address")
	}
	return mac, mac != "", d.err
}
