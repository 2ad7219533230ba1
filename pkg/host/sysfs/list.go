package sysfs

import (
	"strings"

	"devinfo-cni.io/devinfo/pci"
)

// The functions below read every device of the node, so they are for listings. To find an attachment's device,
// use a lookup by name.

// networkClass is the class of PCI network controllers, 02xxxx (PCI Code and ID Assignment Specification 1.3).
const networkClass = "0x02"

// Functions returns the PCI functions of class network controller, by address.
func (f *FS) Functions() ([]Function, error) {
	return each(f, "bus/pci/devices", func(name string) (Function, bool, error) {
		a, err := pci.Parse(name)
		if err != nil {
			return Function{}, false, nil // the entry is not a PCI function
		}
		d := f.in("bus/pci/devices/" + name)
		if !strings.HasPrefix(d.text("class"), networkClass) {
			return Function{}, false, d.err
		}
		return f.PCI(a)
	})
}

// VFs returns how many VFs a PF has, and how many it can have. ok is false if the function is not a PF.
func (f *FS) VFs(fn Function) (number, most int, ok bool, err error) {
	d := f.in(fn.dir)
	if number, ok = d.number("sriov_numvfs"); ok {
		most, _ = d.number("sriov_totalvfs")
	}
	return number, most, ok && d.err == nil, d.err
}

// Auxiliaries returns all devices on the auxiliary bus, sorted by name as in [ByNumber].
func (f *FS) Auxiliaries() ([]Auxiliary, error) { return each(f, "bus/auxiliary/devices", f.Auxiliary) }

// VDPAs returns the vDPA devices, sorted by name as in [ByNumber].
func (f *FS) VDPAs() ([]VDPA, error) { return each(f, "bus/vdpa/devices", f.VDPA) }

// each looks up every device in a directory. It skips a device that disappears during the call.
func each[D any](f *FS, at string, get func(name string) (D, bool, error)) (list []D, err error) {
	in := f.in(at)
	for _, name := range in.names("") {
		d, ok, err := get(name)
		if err != nil {
			return nil, err
		}
		if ok {
			list = append(list, d)
		}
	}
	return list, in.err
}

// Netdev is a network interface, /sys/class/net/<name>.
type Netdev struct {
	Name    string
	Bus     string // device/subsystem: "pci", "virtio", "auxiliary", "netdevsim"; "" without a device
	Device  string // device: "0000:01:00.2", "virtio2", "mlx5_core.sf.4"
	DevPort int    // dev_port, see [Port]
}

// Netdevs returns the network interfaces, sorted by name as in [ByNumber].
func (f *FS) Netdevs() ([]Netdev, error) { return each(f, "class/net", f.Netdev) }

// RDMADevice is an RDMA device, /sys/class/infiniband/<name>.
type RDMADevice struct {
	Name   string
	Bus    string // device/subsystem: "pci", "auxiliary"; "" for a software device
	Device string // device: "0000:01:00.2"
	Netdev string // ports/1/gid_attrs/ndevs/0: interface of the first port; "" = none, or not in this network namespace
}

// RDMADevices returns the RDMA devices, sorted by name as in [ByNumber].
func (f *FS) RDMADevices() ([]RDMADevice, error) {
	return each(f, "class/infiniband", func(name string) (RDMADevice, bool, error) {
		d := f.in("class/infiniband/" + name)
		bus, device := d.parent()
		return RDMADevice{Name: name, Bus: bus, Device: device, Netdev: d.text("ports/1/gid_attrs/ndevs/0")}, true, d.err
	})
}
