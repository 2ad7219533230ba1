package sysfs

import (
	"path"
	"strings"
)

// VFIO is how user space reaches a PCI function that is bound to a VFIO driver.
type VFIO struct {
	Group  string // node below /dev/vfio: "15", or "noiommu-15" where no IOMMU protects the host; "" = none
	Device string // node below /dev/vfio/devices, for iommufd: "vfio0"; "" = the kernel has none (before 6.6, or without CONFIG_VFIO_DEVICE_CDEV)
}

// noIOMMU is the name that VFIO gives to a group that it makes itself, in place of an
// IOMMU (drivers/vfio/group.c, vfio_noiommu_group_alloc).
const noIOMMU = "vfio-noiommu"

// VFIO returns the nodes of a function; ok is false unless a VFIO driver is bound to it:
// vfio-pci, or a vendor's variant such as mlx5_vfio_pci.
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

// nodes lists the devices of a class that have a node below /dev: then they have the attribute dev.
func (d *dir) nodes(class string) (names []string) {
	for _, name := range d.dirs(class) {
		if d.has(path.Join(class, name, "dev")) {
			names = append(names, name)
		}
	}
	return names
}
