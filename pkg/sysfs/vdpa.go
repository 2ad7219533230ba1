package sysfs

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo/pci"
)

// VDPA is a device on the vDPA bus, /sys/bus/vdpa/devices/<name>.
type VDPA struct {
	Name   string
	Driver string       // driver -> vhost_vdpa: "vhost", virtio_vdpa: "virtio"; "" = unbound, another driver: its own name
	PCI    *pci.Address // the nearest PCI function above; nil for a simulator
	Aux    string       // the auxiliary device (SF) right above; "" = none
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
	dir, ok, err := f.device("vdpa", name)
	if !ok {
		return VDPA{}, false, err
	}
	v = VDPA{Name: name, PCI: above(dir), dir: dir}
	driver, _, err := f.linkBase(path.Join(dir, "driver"))
	if err != nil {
		return VDPA{}, false, err
	}
	v.Driver = strings.TrimSuffix(driver, "_vdpa")
	if _, isAux, err := f.device("auxiliary", path.Base(path.Dir(dir))); err != nil {
		return VDPA{}, false, err
	} else if isAux {
		v.Aux = path.Base(path.Dir(dir))
	}
	children, err := f.dirs(dir)
	if err != nil {
		return VDPA{}, false, fmt.Errorf("vdpa %s: %w", name, err)
	}
	for _, c := range children {
		if strings.HasPrefix(c, "vhost-vdpa-") {
			v.Vhost = c
		}
	}
	v.Virtio = onlyVirtio(children)
	if v.Driver == "virtio" && len(v.Virtio) == 0 && v.PCI != nil {
		beside, err := f.dirs(path.Join("bus/pci/devices", v.PCI.String()))
		if err != nil {
			return VDPA{}, false, fmt.Errorf("vdpa %s: %w", name, err)
		}
		v.Virtio = onlyVirtio(beside)
	}
	return v, true, nil
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
	slices.SortFunc(virtio, byNumber)
	return virtio
}

// VDPAOn lists the vDPA devices right below a PCI function, in numerical order, bound to a
// driver or not. It lists none for a PF with VFs: its directory grows with them, so its vDPA
// device, if any, must be asked for by name.
func (f *FS) VDPAOn(fn Function) ([]VDPA, error) {
	if vfs, _, err := f.number(path.Join(fn.dir, "sriov_numvfs")); err != nil || vfs > 0 {
		return nil, err
	}
	return f.vdpaBelow(fn.dir)
}

// VDPAOnAuxiliary lists the vDPA devices right below an auxiliary device.
func (f *FS) VDPAOnAuxiliary(aux Auxiliary) ([]VDPA, error) { return f.vdpaBelow(aux.dir) }

func (f *FS) vdpaBelow(dir string) ([]VDPA, error) {
	if _, err := fs.Stat(f.fsys, "bus/vdpa"); Absent(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	children, err := f.dirs(dir)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(children, byNumber)
	var list []VDPA
	for _, name := range children {
		if at, ok, err := f.device("vdpa", name); err != nil {
			return nil, err
		} else if !ok || at != path.Join(dir, name) {
			continue
		}
		v, ok, err := f.VDPA(name)
		if err != nil {
			return nil, err
		}
		if ok {
			list = append(list, v)
		}
	}
	return list, nil
}
