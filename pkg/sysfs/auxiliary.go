package sysfs

import (
	"path"
	"strings"

	"devinfo-cni.io/devinfo/pci"
)

// Auxiliary is a device on the auxiliary bus, /sys/bus/auxiliary/devices/<name>. It is either a sub-function
// (SF), such as mlx5_core.sf.4, or a device that the driver of a PCI function created for other drivers, such as
// mlx5_core.vnet.0, ice.roce.1, idpf.8086.rdma.core.0 or pds_core.vDPA.1.
type Auxiliary struct {
	Name     string
	SFNumber *int         // sfnum; nil = not an SF, or an SF of ice, which has no sfnum
	PCI      *pci.Address // nearest PCI function above, possibly a VF

	dir string
}

func (a Auxiliary) at() string { return a.dir }

// Auxiliary returns the auxiliary device with the given name. ok is false if it does not exist.
func (f *FS) Auxiliary(name string) (aux Auxiliary, ok bool, err error) {
	d := f.device("auxiliary", name)
	if d.gone {
		return aux, false, d.err
	}
	aux = Auxiliary{Name: name, PCI: above(d.at), dir: d.at}
	if n, isSF := d.number("sfnum"); isSF {
		aux.SFNumber = &n
	}
	return aux, d.err == nil, d.err
}

// IsSF reports whether the device is an SF. SFs of mlx5 have sfnum
// (drivers/net/ethernet/mellanox/mlx5/core/sf/dev/dev.c). SFs of ice only have the name, <driver>.sf.<id>
// (drivers/net/ethernet/intel/ice/ice_sf_eth.c).
func (a Auxiliary) IsSF() bool {
	return a.SFNumber != nil || path.Ext(strings.TrimSuffix(a.Name, path.Ext(a.Name))) == ".sf"
}
