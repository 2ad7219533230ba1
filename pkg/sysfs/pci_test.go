package sysfs_test

import (
	"io/fs"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/pkg/sysfs"
)

// functions are all PCI functions of all captured hosts: address, driver or "-",
// and the PF of a VF.
var functions = map[string]string{
	"i40e": `
		0000:18:00.0 i40e
		0000:18:00.1 i40e
		0000:18:02.0 iavf     0000:18:00.0
		0000:18:02.1 iavf     0000:18:00.0
		0000:18:02.2 vfio-pci 0000:18:00.0
		0000:18:02.3 iavf     0000:18:00.0`,
	"igb-sriov": `
		0000:01:00.0 igb
		0000:01:10.0 igbvf    0000:01:00.0
		0000:01:10.2 igbvf    0000:01:00.0
		0000:01:10.4 igbvf    0000:01:00.0
		0000:01:10.6 vfio-pci 0000:01:00.0
		0000:02:00.0 virtio-pci
		0000:41:00.0 igb
		0000:41:10.0 igbvf    0000:41:00.0
		0000:41:10.2 igbvf    0000:41:00.0`,
	"mlx5-legacy": `
		0000:3b:00.0 mlx5_core
		0000:3b:00.1 mlx5_core
		0000:3b:00.2 mlx5_core 0000:3b:00.0
		0000:3b:00.3 mlx5_core 0000:3b:00.0
		0000:3b:00.4 vfio-pci  0000:3b:00.0
		0000:3b:00.5 -         0000:3b:00.0`,
	"mlx5-switchdev": `
		0000:03:00.0 mlx5_core
		0000:03:00.2 mlx5_core 0000:03:00.0
		0000:03:00.3 mlx5_core 0000:03:00.0
		0000:03:00.4 mlx5_core 0000:03:00.0
		0000:03:00.5 vfio-pci  0000:03:00.0`,
	"mlx5-vdpa": `
		0000:65:00.0 mlx5_core
		0000:65:00.2 mlx5_core 0000:65:00.0
		0000:65:00.3 mlx5_core 0000:65:00.0
		0000:65:00.4 mlx5_core 0000:65:00.0
		0000:65:00.5 mlx5_core 0000:65:00.0`,
	"netdevsim-switchdev": ``,
	"rxe-rdma": `
		0000:01:00.0 igb
		0000:01:10.0 igbvf    0000:01:00.0
		0000:01:10.2 igbvf    0000:01:00.0
		0000:01:10.4 igbvf    0000:01:00.0
		0000:01:10.6 vfio-pci 0000:01:00.0
		0000:41:00.0 igb
		0000:41:10.0 igbvf    0000:41:00.0
		0000:41:10.2 igbvf    0000:41:00.0`,
	"vdpa-sim": `
		0000:02:00.0 virtio-pci`,
	"vdpa-vf": `
		0000:01:00.0 -
		0000:02:00.0 virtio-pci
		0000:02:00.1 vp-vdpa    0000:02:00.0
		0000:02:00.2 virtio-pci 0000:02:00.0
		0000:41:00.0 -`,
	"vdpa-vf-virtio": `
		0000:01:00.0 -
		0000:02:00.0 virtio-pci
		0000:02:00.1 vp-vdpa    0000:02:00.0
		0000:02:00.2 virtio-pci 0000:02:00.0
		0000:41:00.0 -`,
	"virtio-vm": `
		0000:00:03.0 virtio-pci
		0000:00:04.0 virtio-pci
		0000:00:05.0 iavf
		0000:00:06.0 mlx5_core`,
	"vmd": `
		0000:00:0e.0  vmd
		10000:e1:00.0 bnxt_en
		10000:e1:00.1 bnxt_en 10000:e1:00.0`,
}

func rows(table string) (list [][]string) {
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) > 0 {
			list = append(list, append(fields, "", ""))
		}
	}
	return list
}

func TestFunctionHasDriverAndPF(t *testing.T) {
	for host, table := range functions {
		t.Run(host, func(t *testing.T) {
			each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
				if there, _ := fs.Glob(sys.Files(), "bus/pci/devices/*"); len(there) != len(rows(table)) {
					t.Errorf("the host has %d functions: %v", len(there), there)
				}
				for _, row := range rows(table) {
					want := sysfs.Function{Address: addr(t, row[0]), Driver: strings.Trim(row[1], "-"), PF: maybe(t, row[2])}
					equal(t, row[0], public(function(t, sys, row[0])), want)
				}
			})
		})
	}
}

func TestFunctionThatIsNotThereIsAbsent(t *testing.T) {
	for host := range functions {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			for _, a := range []pci.Address{{}, {Domain: 0xffffffff, Bus: 0xff, Device: 0x1f, Function: 7}} {
				if fn, ok, err := sys.PCI(a); ok || err != nil {
					t.Errorf("%s: %v is %+v, %v", host, a, fn, err)
				}
			}
		})
	}
}

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

func TestVFIndexCountsByOffsetAndStride(t *testing.T) {
	for host, pfs := range map[string]map[string][]string{
		"i40e":           {"0000:18:00.0": {"0000:18:02.0", "0000:18:02.1", "0000:18:02.2", "0000:18:02.3"}},
		"igb-sriov":      {"0000:01:00.0": {"0000:01:10.0", "0000:01:10.2", "0000:01:10.4", "0000:01:10.6"}, "0000:41:00.0": {"0000:41:10.0", "0000:41:10.2"}},
		"rxe-rdma":       {"0000:01:00.0": {"0000:01:10.0", "0000:01:10.2", "0000:01:10.4", "0000:01:10.6"}, "0000:41:00.0": {"0000:41:10.0", "0000:41:10.2"}},
		"mlx5-legacy":    {"0000:3b:00.0": {"0000:3b:00.2", "0000:3b:00.3", "0000:3b:00.4", "0000:3b:00.5"}},
		"mlx5-switchdev": {"0000:03:00.0": {"0000:03:00.2", "0000:03:00.3", "0000:03:00.4", "0000:03:00.5"}},
		"mlx5-vdpa":      {"0000:65:00.0": {"0000:65:00.2", "0000:65:00.3", "0000:65:00.4", "0000:65:00.5"}},
		"vdpa-vf":        {"0000:02:00.0": {"0000:02:00.1", "0000:02:00.2"}},
		"vdpa-vf-virtio": {"0000:02:00.0": {"0000:02:00.1", "0000:02:00.2"}},
		"vmd":            {"10000:e1:00.0": {"10000:e1:00.1"}},
	} {
		t.Run(host, func(t *testing.T) {
			each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
				for pf, vfs := range pfs {
					for want, vf := range vfs {
						if n, ok, err := sys.VFIndex(addr(t, pf), addr(t, vf)); n != want || !ok || err != nil {
							t.Errorf("%s of %s: %d, %v, %v; want %d", vf, pf, n, ok, err, want)
						}
					}
				}
			})
		})
	}
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

func TestVFIndexOfASingleVFNeedsNoStride(t *testing.T) { // PCIe SR-IOV 3.3.10: unused with one VF, may be 0
	for _, stride := range []string{"-- sys/devices/pci0000:00/0000:01:00.0/sriov_stride --\n0\n", ""} {
		h := made(t, `
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/devices/pci0000:00/0000:01:00.0/sriov_offset --
3
-- sys/devices/pci0000:00/0000:01:00.0/virtfn0 -> ../0000:01:00.3 --
`+stride)
		each(t, h, func(t *testing.T, sys *sysfs.FS) {
			if n, ok, err := sys.VFIndex(addr(t, "0000:01:00.0"), addr(t, "0000:01:00.3")); n != 0 || !ok || err != nil {
				t.Errorf("%d, %v, %v", n, ok, err)
			}
			if n, ok, err := sys.VFIndex(addr(t, "0000:01:00.0"), addr(t, "0000:01:00.4")); ok || err != nil {
				t.Errorf("its neighbour: %d, %v, %v", n, ok, err)
			}
		})
	}
}

func TestRDMADevicesAreInNumericalOrder(t *testing.T) {
	for host, functions := range map[string]map[string][]string{
		"mlx5-legacy": {
			"0000:3b:00.0": {"mlx5_0"}, "0000:3b:00.1": {"mlx5_1"}, "0000:3b:00.2": {"mlx5_2"},
			"0000:3b:00.3": {"mlx5_9", "mlx5_10"}, "0000:3b:00.4": nil, "0000:3b:00.5": nil,
		},
		"mlx5-switchdev": {"0000:03:00.0": {"mlx5_0"}, "0000:03:00.3": {"mlx5_3"}, "0000:03:00.5": nil}, // not the SFs' mlx5_7, mlx5_8
		"virtio-vm":      {"0000:00:06.0": {"mlx5_0"}, "0000:00:05.0": nil},
		"rxe-rdma":       {"0000:01:00.0": nil}, // soft RDMA is below devices/virtual
		"i40e":           {"0000:18:00.0": nil},
	} {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			for a, want := range functions {
				got, err := sys.RDMA(function(t, sys, a))
				if err != nil {
					t.Error(err)
				}
				equal(t, host+" "+a, got, want)
			}
		})
	}
	sys := sysfs.New(hosttxttest.ManyVFs(12).Sys())
	got, err := sys.RDMA(function(t, sys, hosttxttest.VF(11)))
	if err != nil {
		t.Error(err)
	}
	equal(t, "many", got, []string{"mlx5_13"})
}

func TestRDMADevicesAreOrderedByPrefixFirst(t *testing.T) {
	text := "-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --\n"
	want := []string{"bnxt_re0", "bnxt_re11", "mlx5_2", "mlx5_10", "mlx5_100", "mlx5_bond", "mlx5_bond_0", "rocep1s0f1"}
	for n := range want {
		text += "-- sys/devices/pci0000:00/0000:01:00.0/infiniband/" + want[(n*5+3)%len(want)] + "/ --\n"
	}
	each(t, made(t, text), func(t *testing.T, sys *sysfs.FS) {
		got, err := sys.RDMA(function(t, sys, "0000:01:00.0"))
		if err != nil {
			t.Error(err)
		}
		equal(t, "order", got, want)
	})
}

func TestNUMANodeMinusOneIsNone(t *testing.T) {
	h := made(t, `
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/devices/pci0000:00/0000:01:00.0/numa_node --
1
-- sys/bus/pci/devices/0000:02:00.0 -> ../../../devices/pci0000:00/0000:02:00.0 --
-- sys/devices/pci0000:00/0000:02:00.0/numa_node --
-1
-- sys/bus/pci/devices/0000:03:00.0 -> ../../../devices/pci0000:00/0000:03:00.0 --
-- sys/devices/pci0000:00/0000:03:00.0/vendor --
0x15b3
-- sys/bus/pci/devices/0000:04:00.0 -> ../../../devices/pci0000:00/0000:04:00.0 --
-- sys/devices/pci0000:00/0000:04:00.0/numa_node --
near
`)
	type answer struct {
		node   int
		ok     bool
		broken bool
	}
	each(t, h, func(t *testing.T, sys *sysfs.FS) {
		for address, want := range map[string]answer{
			"0000:01:00.0": {1, true, false}, "0000:02:00.0": {}, "0000:03:00.0": {}, "0000:09:00.0": {}, "0000:04:00.0": {broken: true},
		} {
			node, ok, err := sys.NUMANode(addr(t, address))
			equal(t, address, answer{node, ok, err != nil}, want)
		}
	})
}
