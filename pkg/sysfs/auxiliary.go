package sysfs

import (
	"path"
	"strings"

	"devinfo-cni.io/devinfo/pci"
)

// Auxiliary is a device on the auxiliary bus, /sys/bus/auxiliary/devices/<name>.
// A sub-function (SF) is one: mlx5_core.sf.4. So is a part that a driver has split its
// function into for other drivers: mlx5_core.vnet.0, ice.roce.1, idpf.8086.rdma.core.0,
// pds_core.vDPA.1.
type Auxiliary struct {
	Name     string
	SFNumber *int         // sfnum; nil = not an SF, or one of ice, which does not say
	PCI      *pci.Address // the nearest PCI function above, which may itself be a VF

	dir string
}

func (a Auxiliary) at() string { return a.dir }

// Auxiliary gives the auxiliary device of a name; ok is false when there is none.
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

// IsSF reports whether the device is an SF, rather than a part of its function. One of mlx5
// has sfnum (drivers/net/ethernet/mellanox/mlx5/core/sf/dev/dev.c); one of ice is only named
// so, <driver>.sf.<id> (drivers/net/ethernet/intel/ice/ice_sf_eth.c).
func (a Auxiliary) IsSF() bool {
	return a.SFNumber != nil || path.Ext(strings.TrimSuffix(a.Name, path.Ext(a.Name))) == ".sf"
}
