package sysfs

import "devinfo-cni.io/devinfo/pci"

// Object identifies a kernel device among all devices since boot.
type Object struct {
	ID    string // bus and name: "pci-0000:01:10.6", "auxiliary-mlx5_core.sf.4", "vdpa-vdpa0"
	Inode uint64 // inode of its directory in /sys, see [FS.Inode]; 0 = unknown
}

// ID returns the ID of an [Object].
func ID(bus, name string) string { return bus + "-" + name }

// Lineage returns the named device, followed by the devices that contain it: a vDPA device's SF, the PCI
// function of either, and a VF's PF. The name is a PCI address, or the name of a device on the auxiliary or
// vDPA bus. Lineage returns nil for a missing device or any other name.
func (f *FS) Lineage(name string) (line []Object, err error) {
	add := func(bus, name, at string) error {
		d := f.in(at)
		line = append(line, Object{ID(bus, name), d.inode()})
		return d.err
	}
	address, notPCI := pci.Parse(name)
	function := &address
	if notPCI != nil {
		v, isVDPA, err := f.VDPA(name)
		if function = nil; isVDPA {
			name, function = v.SF, v.PCI
			err = add("vdpa", v.Name, v.dir)
		}
		if err != nil {
			return nil, err
		}
		aux, isAux, err := f.Auxiliary(name)
		if isAux { // an auxiliary device is traced through its PCI function
			function = aux.PCI
		}
		if isAux && aux.IsSF() {
			err = add("auxiliary", aux.Name, aux.dir)
		}
		if err != nil {
			return nil, err
		}
	}
	for function != nil {
		fn, ok, err := f.PCI(*function)
		if ok {
			err = add("pci", fn.Address.String(), fn.dir)
		}
		if err != nil {
			return nil, err
		}
		function = fn.PF
	}
	return line, nil
}
