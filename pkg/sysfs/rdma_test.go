package sysfs_test

import (
	"testing"

	"devinfo-cni.io/pkg/sysfs"
)

func TestRDMANodesAreThoseOfTheDevice(t *testing.T) {
	for host, list := range map[string]map[string][]string{
		"mlx5-legacy":    {"0000:3b:00.0": {"uverbs0"}, "0000:3b:00.3": {"uverbs3", "uverbs4"}, "0000:3b:00.4": nil},
		"mlx5-switchdev": {"0000:03:00.0": {"uverbs0"}, "0000:03:00.3": {"uverbs2"}},
		"igb-sriov":      {"0000:01:10.0": nil},
	} {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			for address, want := range list {
				got, err := sys.RDMANodes(function(t, sys, address))
				if err != nil {
					t.Error(err)
				}
				equal(t, host+" "+address, got, want)
			}
		})
	}
}

func TestRDMANodesOfASubFunctionAreItsOwn(t *testing.T) {
	each(t, load(t, "mlx5-switchdev"), func(t *testing.T, sys *sysfs.FS) {
		for name, want := range map[string][]string{"mlx5_core.sf.4": {"uverbs4"}, "mlx5_core.sf.7": {"uverbs5"}, "mlx5_core.eth.0": nil} {
			got, err := sys.RDMANodesOf(auxiliary(t, sys, name))
			if err != nil {
				t.Error(err)
			}
			equal(t, name, got, want)
		}
	})
}

// What has no attribute dev has no node.
const mad = `
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/devices/pci0000:00/0000:01:00.0/infiniband_mad/umad10/dev --
231:10
-- sys/devices/pci0000:00/0000:01:00.0/infiniband_mad/umad9/dev --
231:9
-- sys/devices/pci0000:00/0000:01:00.0/infiniband_mad/issm9/dev --
231:73
-- sys/devices/pci0000:00/0000:01:00.0/infiniband_mad/umad11/ibdev --
mlx5_0
`

func TestRDMANodesAreInNumericalOrder(t *testing.T) {
	each(t, made(t, mad), func(t *testing.T, sys *sysfs.FS) {
		got, err := sys.RDMANodes(function(t, sys, "0000:01:00.0"))
		if err != nil {
			t.Error(err)
		}
		equal(t, "nodes", got, []string{"issm9", "umad9", "umad10"})
	})
}
