package sysfs

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Override returns driver_override (Linux 3.16): the only driver that the kernel may bind to the function. ""
// means any driver.
func (f *FS) Override(fn Function) (string, error) {
	d := f.in(fn.dir)
	name := d.text("driver_override")
	if name == "(null)" { // the kernel's text for none
		name = ""
	}
	return name, d.err
}

func (f *FS) HasDriver(name string) (bool, error) {
	d := f.in("bus/pci/drivers")
	return isName(name) && d.has(name), d.err
}

// IOMMUGroup returns the IOMMU group of a function and the group's members, by address. The IOMMU can isolate
// these functions only together. It returns "" and no members if no IOMMU isolates the function.
func (f *FS) IOMMUGroup(fn Function) (group string, members []Member, err error) {
	d := f.in(fn.dir)
	if group = d.link("iommu_group"); group == "" {
		return "", nil, d.err
	}
	members, err = each(f, path.Join("kernel/iommu_groups", group, "devices"), func(name string) (Member, bool, error) {
		d := f.device("pci", name)
		return Member{name, d.link("driver"), strings.HasPrefix(d.text("class"), "0x06")}, true, d.err
	})
	return group, members, err
}

type Member struct {
	Name   string // "0000:01:00.2"
	Driver string // "" = unbound
	Bridge bool   // a PCI bridge, class 06xxxx
}

// WithoutIOMMU reports whether VFIO accepts functions that no IOMMU isolates
// (/sys/module/vfio/parameters/enable_unsafe_noiommu_mode).
func (f *FS) WithoutIOMMU() (bool, error) {
	d := f.in("module/vfio/parameters")
	return d.text("enable_unsafe_noiommu_mode") == "Y", d.err
}

// Writer returns a function that writes attributes of the sysfs mounted at dir. Names are relative to dir. The
// error is the kernel's.
func Writer(dir string) func(name, text string) error {
	return func(name, text string) error {
		file, err := os.OpenFile(filepath.Join(dir, filepath.FromSlash(name)), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteString(text)
		return cmp.Or(err, file.Close())
	}
}

// VFIO names the device nodes of a PCI function that is bound to a VFIO driver.
type VFIO struct {
	Group  string // below /dev/vfio: "15", or "noiommu-15" if no IOMMU protects the host; "" = none
	Device string // below /dev/vfio/devices, for iommufd: "vfio0"; "" = none (before Linux 6.6, or without CONFIG_VFIO_DEVICE_CDEV)
}

// noIOMMU is the name of the groups that VFIO creates if there is no IOMMU (drivers/vfio/group.c,
// vfio_noiommu_group_alloc).
const noIOMMU = "vfio-noiommu"

// OnVFIO reports whether a driver is one of VFIO: vfio-pci, or a vendor's variant such as mlx5_vfio_pci.
func OnVFIO(driver string) bool { return strings.Contains(driver, "vfio") }

// OnUIO reports whether a driver is one of uio: uio_pci_generic of the kernel, or igb_uio of DPDK.
func OnUIO(driver string) bool { return strings.Contains(driver, "uio") }

// VFIO returns the VFIO device nodes of a function. ok is false unless a VFIO driver is bound to it.
func (f *FS) VFIO(fn Function) (v VFIO, ok bool, err error) {
	if !OnVFIO(fn.Driver) {
		return VFIO{}, false, nil
	}
	d := f.in(fn.dir)
	v = d.vfio()
	return v, d.err == nil, d.err
}

func (d *dir) vfio() (v VFIO) {
	if v.Group = d.link("iommu_group"); v.Group != "" && d.text("iommu_group/name") == noIOMMU {
		v.Group = "noiommu-" + v.Group
	}
	for _, name := range d.nodes("vfio-dev") {
		v.Device = name
	}
	return v
}

// NodeNumbers returns the numbers, "10:59", of the device nodes through which a process can have a device open: those of
// VFIO, the verbs of RDMA, and vhost-vdpa, which is a child of the vDPA device itself.
func (f *FS) NodeNumbers(bus, device string) (numbers []string, err error) {
	d := f.device(bus, device)
	if d.gone {
		return nil, d.err
	}
	add := func(d *dir, name string) {
		if text := d.text(name); text != "" {
			numbers = append(numbers, text)
		}
	}
	for _, class := range []string{"vfio-dev", "infiniband_verbs", ""} {
		for _, name := range d.nodes(class) {
			add(d, path.Join(class, name, "dev"))
		}
	}
	groups := f.in("class/vfio")
	if group := d.vfio().Group; group != "" && OnVFIO(d.link("driver")) {
		add(groups, path.Join(group, "dev"))
	}
	return numbers, cmp.Or(d.err, groups.err)
}
