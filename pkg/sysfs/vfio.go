package sysfs

import (
	"io/fs"
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
	if v.Group, err = f.vfioGroup(fn.dir); err != nil {
		return VFIO{}, false, err
	}
	devices, err := f.dirs(path.Join(fn.dir, "vfio-dev"))
	if err != nil {
		return VFIO{}, false, err
	}
	for _, name := range devices {
		if has, err := f.hasNode(path.Join(fn.dir, "vfio-dev", name)); err != nil {
			return VFIO{}, false, err
		} else if has {
			v.Device = name
		}
	}
	return v, true, nil
}

func (f *FS) vfioGroup(dir string) (string, error) {
	group, ok, err := f.linkBase(path.Join(dir, "iommu_group"))
	if !ok {
		return "", err
	}
	name, _, err := f.text(path.Join("kernel/iommu_groups", group, "name"))
	if name == noIOMMU {
		group = "noiommu-" + group
	}
	return group, err
}

// hasNode says whether a device has a node below /dev: then it has the attribute dev.
func (f *FS) hasNode(dir string) (bool, error) {
	_, ok, err := known(fs.Stat(f.fsys, path.Join(dir, "dev")))
	return ok, err
}
