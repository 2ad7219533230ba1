package sysfs_test

import (
	"strings"
	"testing"

	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/pkg/sysfs"
)

func TestPhysfnThatIsNoAddressIsAnError(t *testing.T) {
	h := made(t, `
-- sys/bus/pci/devices/0000:01:00.1 -> ../../../devices/pci0000:00/0000:01:00.1 --
-- sys/devices/pci0000:00/0000:01:00.1/physfn -> ../parent --
`)
	each(t, h, func(t *testing.T, sys *sysfs.FS) {
		_, ok, err := sys.PCI(addr(t, "0000:01:00.1"))
		if ok || err == nil || !strings.Contains(err.Error(), `0000:01:00.1: physfn: "parent"`) {
			t.Errorf("%v, %v", ok, err)
		}
	})
}

func TestVFIndexOfVFsOnSeveralBuses(t *testing.T) {
	const n = 1024
	sys, pf := sysfs.New(hosttxttest.ManyVFs(n).Sys()), addr(t, "0000:3b:00.0")
	for want := range n {
		if got, ok, err := sys.VFIndex(pf, addr(t, hosttxttest.VF(want))); got != want || !ok || err != nil {
			t.Fatalf("%s: %d, %v, %v; want %d", hosttxttest.VF(want), got, ok, err, want)
		}
	}
	if got, ok, err := sys.VFIndex(pf, addr(t, hosttxttest.VF(n))); ok || err != nil {
		t.Errorf("one too many: %d, %v, %v", got, ok, err)
	}
}

func TestVFIndexOfAStrangerIsAbsent(t *testing.T) {
	for _, test := range []struct{ why, host, pf, vf string }{
		{"another PF's VF", "igb-sriov", "0000:01:00.0", "0000:41:10.0"},
		{"another PF's VF, before the first", "igb-sriov", "0000:41:00.0", "0000:01:10.0"},
		{"between two VFs", "igb-sriov", "0000:01:00.0", "0000:01:10.1"},
		{"behind the last VF", "igb-sriov", "0000:01:00.0", "0000:01:11.0"},
		{"same place in another domain", "igb-sriov", "0000:01:00.0", "0001:01:10.0"},
		{"PF of itself", "igb-sriov", "0000:01:00.0", "0000:01:00.0"},
		{"a VF for the PF", "igb-sriov", "0000:01:10.0", "0000:01:10.2"},
		{"PF that is not there", "igb-sriov", "0000:07:00.0", "0000:01:10.0"},
		{"PF without VFs", "mlx5-legacy", "0000:3b:00.1", "0000:3b:01.2"},
		{"the other port's VF", "mlx5-legacy", "0000:3b:00.1", "0000:3b:00.2"},
		{"VF in a machine that has no PF", "virtio-vm", "0000:00:03.0", "0000:00:05.0"},
	} {
		each(t, load(t, test.host), func(t *testing.T, sys *sysfs.FS) {
			if n, ok, err := sys.VFIndex(addr(t, test.pf), addr(t, test.vf)); ok || n != 0 || err != nil {
				t.Errorf("%s: %d, %v, %v", test.why, n, ok, err)
			}
		})
	}
}
