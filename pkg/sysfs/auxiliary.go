package sysfs

import (
	"path"

	"devinfo-cni.io/devinfo/pci"
)

// Auxiliary is a device on the auxiliary bus, /sys/bus/auxiliary/devices/<name>.
// A sub-function (SF) is one: mlx5_core.sf.4.
type Auxiliary struct {
	Name     string
	SFNumber *int         // sfnum; nil = not an SF
	PCI      *pci.Address // the nearest PCI function above, which may itself be a VF

	dir string
}

// Auxiliary gives the auxiliary device of a name; ok is false when there is none.
func (f *FS) Auxiliary(name string) (aux Auxiliary, ok bool, err error) {
	dir, ok, err := f.device("auxiliary", name)
	if !ok {
		return Auxiliary{}, false, err
	}
	aux = Auxiliary{Name: name, PCI: above(dir), dir: dir}
	n, isSF, err := f.number(path.Join(dir, "sfnum"))
	if err != nil {
		return Auxiliary{}, false, err
	}
	if isSF {
		aux.SFNumber = &n
	}
	return aux, true, nil
}

// RDMAOf lists the auxiliary device's RDMA devices, as [FS.RDMA] does.
func (f *FS) RDMAOf(aux Auxiliary) ([]string, error) { return f.rdma(aux.dir) }
