package sysfs

import (
	"path"
	"strings"
)

// VFIO names the device nodes of a PCI function that is bound to a VFIO driver.
type VFIO struct {
	Group  string // below /dev/vfio: "15", or "noiommu-15" if no IOMMU protects the host; "" = none
	Device string // below /dev/vfio/devices, for iommufd: "vfio0"; "" = none (before Linux 6.6, or without CONFIG_VFIO_DEVICE_CDEV)
}

// noIOMMU is the name of the groups that VFIO creates if there is no IOMMU (drivers/vfio/group.c,
// vfio_noiommu_group_alloc).
const noIOMMU = "vfio-noiommu"

// VFIO returns the VFIO device nodes of a function. ok is false unless a VFIO driver is bound to it: vfio-pci,
// or a vendor's variant such as mlx5_vfio_pci.
func (f *FS) VFIO(fn Function) (v VFIO, ok bool, err error) {
	if !strings.Contains(fn.Driver, "vfio") {
		return VFIO{}, false, nil
	}
	d := f.in(fn.dir)
	if v.Group = d.link("iommu_group"); v.Group != "" && d.text("iommu_group/name") == noIOMMU {
		v.Group = "noiommu-" + v.Group
	}
	for _, name := range d.nodes("vfio-dev") {
		v.Device = name
	}
	return v, d.err == nil, d.err
}

// nodes lists the devices of a class that have a device node below /dev; these have an attribute "dev" in sysfs.
func (d *dir) nodes(class string) (names []string) {
	for _, name := range d.dirs(class) {
		if d.has(path.Join(class, name, "dev")) {
			names = append(names, name)
		}
	}
	return names
}
