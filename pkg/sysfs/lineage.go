package sysfs

import "devinfo-cni.io/devinfo/pci"

// Object is a device of the kernel's, by what tells it from all others of this boot.
type Object struct {
	ID    string // bus and name: "pci-0000:01:10.6", "auxiliary-mlx5_core.sf.4", "vdpa-vdpa0"
	Inode uint64 // of its directory in /sys: see [FS.Inode]; 0 = unknown
}

// ID is the name of an [Object].
func ID(bus, name string) string { return bus + "-" + name }

// Lineage returns the device of a name, and then those that it is a part of: of a vDPA
// device its sub-function, of both their PCI function, of a VF its PF. The name is a PCI
// address, or that of a device on the auxiliary or the vDPA bus; for any other there is
// nothing, nor for a device that is not there.
func (f *FS) Lineage(name string) ([]Object, error) {
	var line []node
	address, notPCI := pci.Parse(name)
	function := &address
	if notPCI != nil {
		v, isVDPA, err := f.VDPA(name)
		if err != nil {
			return nil, err
		}
		if function = nil; isVDPA {
			line = append(line, node{"vdpa", v.Name, v.dir})
			name, function = v.SF, v.PCI
		}
		aux, isAux, err := f.Auxiliary(name)
		if err != nil {
			return nil, err
		}
		if isAux { // a part of a function is the function
			function = aux.PCI
		}
		if isAux && aux.IsSF() {
			line = append(line, node{"auxiliary", aux.Name, aux.dir})
		}
	}
	for function != nil {
		fn, ok, err := f.PCI(*function)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		line = append(line, node{"pci", fn.Address.String(), fn.dir})
		function = fn.PF
	}
	return f.objects(line)
}

// node is a device that was found.
type node struct{ bus, name, dir string }

func (f *FS) objects(line []node) (list []Object, err error) {
	for _, n := range line {
		inode, err := f.inode(n.dir)
		if err != nil {
			return nil, err
		}
		list = append(list, Object{ID(n.bus, n.name), inode})
	}
	return list, nil
}
