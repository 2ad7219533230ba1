package sysfs

import (
	"io/fs"
	"path"
	"sort"
	"strings"

	"devinfo-cni.io/devinfo/pci"
)

// The lists below read every device of the node: they are for people. An attachment's
// device is asked for by its name.

// networkClass is the class of PCI network controllers, 02xxxx (PCI Code and ID
// Assignment Specification 1.3).
const networkClass = "0x02"

// Functions lists the PCI functions of class network controller, by address.
func (f *FS) Functions() ([]Function, error) {
	return each(f, "bus/pci/devices", func(name string) (Function, bool, error) {
		a, err := pci.Parse(name)
		if err != nil {
			return Function{}, false, nil // not the address of a function
		}
		class, _, err := f.text("bus/pci/devices/" + name + "/class")
		if err != nil || !strings.HasPrefix(class, networkClass) {
			return Function{}, false, err
		}
		return f.PCI(a)
	})
}

// VFs returns how many VFs a function has, and how many it may have; ok is false unless it
// is a PF.
func (f *FS) VFs(fn Function) (number, most int, ok bool, err error) {
	if number, ok, err = f.number(path.Join(fn.dir, "sriov_numvfs")); !ok {
		return 0, 0, false, err
	}
	most, _, err = f.number(path.Join(fn.dir, "sriov_totalvfs"))
	return number, most, err == nil, err
}

// Auxiliaries lists the devices on the auxiliary bus in numerical order. SFs are
// among them, and the parts that a driver has split its function into.
func (f *FS) Auxiliaries() ([]Auxiliary, error) { return each(f, "bus/auxiliary/devices", f.Auxiliary) }

// VDPAs lists the vDPA devices in numerical order.
func (f *FS) VDPAs() ([]VDPA, error) { return each(f, "bus/vdpa/devices", f.VDPA) }

// each looks up every device that a directory lists; one that goes away meanwhile is left out.
func each[D any](f *FS, dir string, get func(name string) (D, bool, error)) ([]D, error) {
	names, err := f.names(dir)
	if err != nil {
		return nil, err
	}
	var list []D
	for _, name := range names {
		d, ok, err := get(name)
		if err != nil {
			return nil, err
		}
		if ok {
			list = append(list, d)
		}
	}
	return list, nil
}

// Netdev is a network interface, /sys/class/net/<name>, of the network namespace that the
// sysfs was mounted in.
type Netdev struct {
	Name    string
	Bus     string // device/subsystem: "pci", "virtio", "auxiliary", "netdevsim"; "" without device
	Device  string // device: "0000:01:00.2", "virtio2", "mlx5_core.sf.4"
	DevPort int    // dev_port: see [Port]
}

// Netdevs lists the network interfaces in numerical order.
func (f *FS) Netdevs() ([]Netdev, error) { return each(f, "class/net", f.Netdev) }

// RDMADevice is an RDMA device, /sys/class/infiniband/<name>.
type RDMADevice struct {
	Name   string
	Bus    string // device/subsystem: "pci", "auxiliary"; "" for one in software
	Device string // device: "0000:01:00.2"
	Netdev string // ports/1/gid_attrs/ndevs/0: the interface of its first port; "" = none, or in another namespace
}

// RDMADevices lists the RDMA devices in numerical order.
func (f *FS) RDMADevices() ([]RDMADevice, error) {
	return each(f, "class/infiniband", func(name string) (d RDMADevice, ok bool, err error) {
		d.Name = name
		if d.Bus, d.Device, err = f.parent("class/infiniband/" + name); err != nil {
			return d, false, err
		}
		d.Netdev, _, err = f.text("class/infiniband/" + name + "/ports/1/gid_attrs/ndevs/0")
		return d, true, err
	})
}

// parent gives the device that a device of a class belongs to.
func (f *FS) parent(dir string) (bus, device string, err error) {
	if device, _, err = f.linkBase(dir + "/device"); err != nil || device == "" {
		return "", "", err
	}
	bus, _, err = f.linkBase(dir + "/device/subsystem")
	return bus, device, err
}

// names lists what a directory holds.
func (f *FS) names(dir string) ([]string, error) {
	return f.entries(dir, func(fs.DirEntry) bool { return true })
}

// entries lists the wanted entries of a directory in numerical order; none if it is absent.
func (f *FS) entries(dir string, wanted func(fs.DirEntry) bool) ([]string, error) {
	list, ok, err := known(fs.ReadDir(f.fsys, dir))
	if !ok {
		return nil, err
	}
	var names []string
	for _, e := range list {
		if wanted(e) {
			names = append(names, e.Name())
		}
	}
	sort.Sort(byNumber(names))
	return names, nil
}
