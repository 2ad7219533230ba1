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
	dir, ok, err := f.device("virtio", name)
	if !ok {
		return Virtio{}, false, err
	}
	v = Virtio{Name: name, PCI: above(dir)}
	parent := path.Base(path.Dir(dir))
	if at, isVDPA, err := f.device("vdpa", parent); err != nil {
		return Virtio{}, false, err
	} else if isVDPA && at == path.Dir(dir) {
		v.VDPA = parent
	}
	return v, true, nil
}

// VirtioMAC returns the hardware address of a virtio device's interface, as the kernel
// prints it; ok is false if the interface is not visible from here.
func (f *FS) VirtioMAC(name string) (mac string, ok bool, err error) {
	dir, ok, err := f.device("virtio", name)
	if !ok {
		return "", false, err
	}
	net := path.Join(dir, "net")
	names, err := f.names(net)
	if len(names) == 0 {
		return "", false, err
	}
	return f.text(path.Join(net, names[0], "address"))
}
