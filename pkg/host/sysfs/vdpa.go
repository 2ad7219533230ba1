package sysfs

import (
	"path"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo/pci"
)

// VDPA is a device on the vDPA bus, /sys/bus/vdpa/devices/<name>. Its directory is directly below the PCI function
// or SF that carries it, also with mlx5 (drivers/vdpa/mlx5/net/mlx5_vnet.c, mlx5_vdpa_dev_add). Only pds_vdpa puts it
// below another auxiliary device, pds_core.vDPA.N (drivers/vdpa/pds/vdpa_dev.c, pds_vdpa_dev_add).
type VDPA struct {
	Name   string
	Driver string       // name of the driver without "_vdpa": "vhost", "virtio" or another; "" = unbound
	PCI    *pci.Address // nearest PCI function above; nil for a simulator
	Aux    string       // auxiliary device directly above; "" = none
	SF     string       // same as Aux if that is an SF; "" = none
	Vhost  string       // its child vhost-vdpa-N, also the name of the device node below /dev; "" = none
	Virtio []string     // virtio devices below this device or its PCI function; if several, compare their MAC addresses

	dir string
}

// VDPA returns the vDPA device with the given name. ok is false if it does not exist.
//
// For a device on virtio_vdpa that has no virtio device of its own, VDPA lists the directory of its PCI
// function. If that function is a PF, the time grows with its VFs.
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

// VDPAs returns the vDPA devices, sorted by name as in [ByNumber].
func (f *FS) VDPAs() ([]VDPA, error) { return each(f, "bus/vdpa/devices", f.VDPA) }

// Management returns the management device that created the vDPA device, in the notation of "vdpa mgmtdev show", such
// as "pci/0000:01:00.2" or "auxiliary/mlx5_core.sf.4". It returns "" if /sys does not show it, as for a simulator.
func (v VDPA) Management() string {
	switch {
	case v.Aux != "":
		return "auxiliary/" + v.Aux
	case v.PCI != nil:
		return "pci/" + v.PCI.String()
	}
	return ""
}

func onlyVirtio(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "virtio") })
}

// VDPAOn returns the vDPA devices directly below a device, or below one of its auxiliary devices, except those of
// its SFs. They are sorted by [ByNumber] and may have no driver. It looks where each vDPA device of the node is, because
// listing the directory of a PF takes longer with more VFs.
func (f *FS) VDPAOn(on Device) ([]VDPA, error) {
	return each(f, "bus/vdpa/devices", func(name string) (VDPA, bool, error) {
		d := f.device("vdpa", name)
		above := path.Dir(d.at)
		if d.gone || above != on.at() && path.Dir(above) != on.at() {
			return VDPA{}, false, d.err
		}
		v, ok, err := f.VDPA(name)
		return v, ok && (above == on.at() || v.Aux != "" && v.SF == ""), err
	})
}

// Virtio is a device on the virtio bus, /sys/bus/virtio/devices/virtioN. Its network interface is in
// virtioN/net, not in the directory net of the PCI function.
type Virtio struct {
	PCI  *pci.Address // nearest PCI function above; nil = none (a vDPA simulator)
	VDPA string       // vDPA device directly above, on virtio_vdpa; "" = none, or not directly above
}

// Virtio returns the virtio device with the given name. ok is false if it does not exist.
func (f *FS) Virtio(name string) (v Virtio, ok bool, err error) {
	d := f.device("virtio", name)
	if d.gone {
		return v, false, d.err
	}
	v = Virtio{PCI: above(d.at)}
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
