package sysfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"devinfo-cni.io/pkg/sysfs"
)

const drivers = `
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/bus/pci/devices/0000:00:02.0 -> ../../../devices/pci0000:00/0000:00:02.0 --
-- sys/bus/pci/devices/0000:02:00.0 -> ../../../devices/pci0000:00/0000:02:00.0 --
-- sys/bus/pci/drivers/igb/ --
-- sys/devices/pci0000:00/0000:01:00.0/driver -> ../../../bus/pci/drivers/igb --
-- sys/devices/pci0000:00/0000:01:00.0/driver_override --
(null)
-- sys/devices/pci0000:00/0000:01:00.0/iommu_group -> ../../../kernel/iommu_groups/3 --
-- sys/devices/pci0000:00/0000:00:02.0/class --
0x060400
-- sys/devices/pci0000:00/0000:02:00.0/driver_override --
vfio-pci
-- sys/kernel/iommu_groups/3/devices/0000:00:02.0 -> ../../../../devices/pci0000:00/0000:00:02.0 --
-- sys/kernel/iommu_groups/3/devices/0000:01:00.0 -> ../../../../devices/pci0000:00/0000:01:00.0 --
-- sys/kernel/iommu_groups/3/devices/fsl.mc.1 -> ../../../../devices/fsl.mc.1 --
-- sys/module/vfio/parameters/enable_unsafe_noiommu_mode --
Y
`

func TestAFunctionsDriverAndIOMMUGroup(t *testing.T) {
	each(t, made(t, drivers), func(t *testing.T, sys *sysfs.FS) {
		for address, want := range map[string]string{"0000:01:00.0": "", "0000:02:00.0": "vfio-pci", "0000:00:02.0": ""} {
			got, err := sys.Override(function(t, sys, address))
			if err != nil || got != want {
				t.Errorf("%s: driver_override %q, %v", address, got, err)
			}
		}
		for name, want := range map[string]bool{"igb": true, "vfio-pci": false, "": false, "../igb": false} {
			if got, err := sys.HasDriver(name); err != nil || got != want {
				t.Errorf("driver %q: %v, %v", name, got, err)
			}
		}
		group, members, err := sys.IOMMUGroup(function(t, sys, "0000:01:00.0"))
		if err != nil || group != "3" {
			t.Errorf("got %s, %v", group, err)
		}
		equal(t, "members", members, []sysfs.Member{{Name: "0000:00:02.0", Bridge: true}, {Name: "0000:01:00.0", Driver: "igb"}, {Name: "fsl.mc.1"}})
		if group, members, err := sys.IOMMUGroup(function(t, sys, "0000:02:00.0")); group != "" || members != nil || err != nil {
			t.Errorf("got %q, %v, %v", group, members, err)
		}
		if free, err := sys.WithoutIOMMU(); !free || err != nil {
			t.Errorf("got %v, %v", free, err)
		}
	})
}

func TestAnAttributeIsWrittenAndNoneIsMade(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "a")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	write := sysfs.Writer(dir)
	if err := write("a", "x\n"); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(at); string(got) != "x\n" {
		t.Errorf("got %q", got)
	}
	if err := write("b", "x"); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}
