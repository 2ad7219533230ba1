package sysfs

import (
	"path"
	"strings"

	"devinfo-cni.io/devinfo/pci"
)

// VDPA is a device on the vDPA bus, /sys/bus/vdpa/devices/<name>. It is right below the PCI
// function or SF that carries it, also with mlx5, whose mlx5_core.vnet.N has nothing below it
// (drivers/vdpa/mlx5/net/mlx5_vnet.c, mlx5_vdpa_dev_add). Only pds_vdpa puts it below a part
// of the function, pds_core.vDPA.N (drivers/vdpa/pds/vdpa_dev.c, pds_vdpa_dev_add).
type VDPA struct {
	Name   string
	Driver string       // driver -> vhost_vdpa: "vhost", virtio_vdpa: "virtio"; "" = unbound, another driver: its own name
	PCI    *pci.Address // the nearest PCI function above; nil for a simulator
	Aux    string       // the auxiliary device right above; "" = none
	SF     string       // the same if it is an SF, not a part of the function
	Vhost  string       // its child vhost-vdpa-N, which is also the node's name below /dev; "" = none
	Virtio []string     // virtioN below what does its DMA: the device itself (a simulator) or its PCI function; more than one: ask for the MAC

	dir string
}

// VDPA gives the vDPA device of a name; ok is false when there is none.
//
// For a device on virtio_vdpa without a virtioN of its own the directory of its
// PCI function is listed, the one listing that grows with the VFs: only when that
// function is a PF.
func (f *FS) VDPA(name string) (v VDPA, ok bool, err error) {
	d := f.device("vdpa", name)
	if d.gone {
		return v, false, d.err
	}
	v = VDPA{Name: name, PCI: above(d.at), Driver: strings.TrimSuffix(d.link("driver"), "_vdpa"), dir: d.at}
	aux, isAux, err := f.Auxiliary(path.Base(path.Dir(d.at)))
	if err != nil {
		return v, false, err
	}
	if isAux {
		v.Aux = aux.Name
		if aux.IsSF() {
			v.SF = aux.Name
		}
	}
	children := d.dirs("")
	for _, c := range children {
		if strings.HasPrefix(c, "vhost-vdpa-") {
			v.Vhost = c
		}
	}
	v.Virtio = onlyVirtio(children)
	if v.Driver == "virtio" && len(v.Virtio) == 0 && v.PCI != nil && d.err == nil {
		d = f.in("bus/pci/devices/" + v.PCI.String())
		v.Virtio = onlyVirtio(d.dirs(""))
	}
	return v, d.err == nil, d.err
}

// Management is the management device that made the vDPA device, as "vdpa mgmtdev show"
// names it: "pci/0000:01:00.2", "auxiliary/mlx5_core.sf.4"; "" if /sys does not say, as for
// a simulator.
func (v VDPA) Management() string {
	switch {
	case v.Aux != "":
		return "auxiliary/" + v.Aux
	case v.PCI != nil:
		return "pci/" + v.PCI.String()
	}
	return ""
}

func onlyVirtio(names []string) (virtio []string) {
	for _, n := range names {
		if strings.HasPrefix(n, "virtio") {
			virtio = append(virtio, n)
		}
	}
	return virtio
}

// VDPAOn lists the vDPA devices right below a device or, of a PCI function, a part of it, in
// numerical order, bound to a driver or not; not those of its SFs. It lists none for a PF with VFs: its
// directory grows with them, so its vDPA device, if any, must be asked for by name.
func (f *FS) VDPAOn(d Device) (list []VDPA, err error) {
	in, bus := f.in(d.at()), f.in("bus/vdpa")
	if _, part := d.(Auxiliary); !part {
		if vfs, _ := in.number("sriov_numvfs"); vfs > 0 || in.err != nil {
			return nil, in.err
		}
	}
	if !bus.has("") {
		return nil, bus.err
	}
	for _, name := range in.dirs("") {
		below, err := f.vdpaAt(in.at, name)
		if err != nil {
			return nil, err
		}
		list = append(list, below...)
	}
	return list, in.err
}

// vdpaAt gives the vDPA device that is that child of dir, or those on a part of the function.
func (f *FS) vdpaAt(at, name string) ([]VDPA, error) {
	at = path.Join(at, name)
	if d := f.device("vdpa", name); d.err != nil {
		return nil, d.err
	} else if !d.gone && d.at == at {
		v, ok, err := f.VDPA(name)
		if err != nil || !ok {
			return nil, err
		}
		return []VDPA{v}, nil
	}
	aux, ok, err := f.Auxiliary(name)
	if err != nil || !ok || aux.dir != at || aux.IsSF() {
		return nil, err
	}
	return f.VDPAOn(aux)
}
