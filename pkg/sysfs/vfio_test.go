package sysfs_test

import (
	"testing"

	"devinfo-cni.io/pkg/sysfs"
)

func TestFunctionOnVFIOHasItsGroup(t *testing.T) {
	for host, want := range map[string]map[string]sysfs.VFIO{
		"igb-sriov":   {"0000:01:10.6": {Group: "15"}},
		"mlx5-legacy": {"0000:3b:00.4": {Group: "42"}},
		"i40e":        {"0000:18:02.2": {Group: "77"}},
	} {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			for address, want := range want {
				got, ok, err := sys.VFIO(function(t, sys, address))
				if err != nil || !ok {
					t.Errorf("%s: %v, %v", address, ok, err)
				}
				equal(t, address, got, want)
			}
		})
	}
}

func TestFunctionOnAnotherDriverIsNotOnVFIO(t *testing.T) {
	each(t, load(t, "igb-sriov"), func(t *testing.T, sys *sysfs.FS) {
		for _, address := range []string{"0000:01:00.0", "0000:01:10.0", "0000:02:00.0"} {
			if got, ok, err := sys.VFIO(function(t, sys, address)); ok || err != nil {
				t.Errorf("%s: %+v, %v", address, got, err)
			}
		}
	})
}

// vfio is a function on a vendor's variant of vfio-pci, without IOMMU, on a kernel
// that has iommufd, and one on a kernel that has its directory only.
const vfio = `
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/devices/pci0000:00/0000:01:00.0/driver -> ../../../bus/pci/drivers/mlx5_vfio_pci --
-- sys/devices/pci0000:00/0000:01:00.0/iommu_group -> ../../../kernel/iommu_groups/3 --
-- sys/devices/pci0000:00/0000:01:00.0/vfio-dev/vfio7/dev --
511:7
-- sys/kernel/iommu_groups/3/name --
vfio-noiommu
-- sys/bus/pci/devices/0000:02:00.0 -> ../../../devices/pci0000:00/0000:02:00.0 --
-- sys/devices/pci0000:00/0000:02:00.0/driver -> ../../../bus/pci/drivers/vfio-pci --
-- sys/devices/pci0000:00/0000:02:00.0/vfio-dev/vfio8/power/ --
`

func TestVFIOHasADeviceWithIommufdAndANameWithoutIOMMU(t *testing.T) {
	each(t, made(t, vfio), func(t *testing.T, sys *sysfs.FS) {
		for address, want := range map[string]sysfs.VFIO{
			"0000:01:00.0": {Group: "noiommu-3", Device: "vfio7"},
			"0000:02:00.0": {},
		} {
			got, ok, err := sys.VFIO(function(t, sys, address))
			if err != nil || !ok {
				t.Errorf("%s: %v, %v", address, ok, err)
			}
			equal(t, address, got, want)
		}
	})
}
