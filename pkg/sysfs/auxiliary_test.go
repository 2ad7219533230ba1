package sysfs_test

import (
	"testing"

	"devinfo-cni.io/pkg/sysfs"
)

func TestSubFunctionHasNumberAndNearestFunction(t *testing.T) {
	sfnum := func(n int) *int { return &n }
	for host, list := range map[string][]sysfs.Auxiliary{
		"mlx5-switchdev": {
			{Name: "mlx5_core.sf.4", SFNumber: sfnum(88), PCI: maybe(t, "0000:03:00.0")},
			{Name: "mlx5_core.sf.7", SFNumber: sfnum(99), PCI: maybe(t, "0000:03:00.3")}, // which is a VF
			{Name: "mlx5_core.eth.0", PCI: maybe(t, "0000:03:00.0")},                     // not an SF
			{Name: "mlx5_core.rdma.0", PCI: maybe(t, "0000:03:00.0")},
		},
		"mlx5-vdpa": {
			{Name: "mlx5_core.sf.2", SFNumber: sfnum(10), PCI: maybe(t, "0000:65:00.0")},
			{Name: "mlx5_core.sf.3", SFNumber: sfnum(11), PCI: maybe(t, "0000:65:00.0")},
		},
	} {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			for _, want := range list {
				equal(t, want.Name, public(auxiliary(t, sys, want.Name)), want)
			}
		})
	}
}

func TestSubFunctionHasANumberOrItsName(t *testing.T) {
	for host, list := range map[string]map[string]bool{
		"mlx5-switchdev": {"mlx5_core.sf.4": true, "mlx5_core.sf.7": true, "mlx5_core.eth.0": false, "mlx5_core.rdma.0": false},
		"pds-vdpa":       {"pds_core.vDPA.1": false, "pds_core.fwctl.0": false},
	} {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			for name, want := range list {
				equal(t, name, auxiliary(t, sys, name).IsSF(), want)
			}
		})
	}
	for name, want := range map[string]bool{"ice.sf.1": true, "ice.roce.1": false, "idpf.8086.rdma.core.0": false, "sf.1": false, "sf": false} {
		equal(t, name, sysfs.Auxiliary{Name: name}.IsSF(), want)
	}
}

func TestSubFunctionThatIsNotThereIsAbsent(t *testing.T) {
	for _, host := range []string{"mlx5-switchdev", "igb-sriov"} { // the latter has no auxiliary bus at all
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			if aux, ok, err := sys.Auxiliary("mlx5_core.sf.5"); ok || err != nil {
				t.Errorf("%s: %+v, %v", host, aux, err)
			}
		})
	}
}

func TestAuxiliaryDeviceWithoutFunctionHasNone(t *testing.T) {
	h := made(t, `
-- sys/bus/auxiliary/devices/snd.0 -> ../../../devices/platform/snd/snd.0 --
-- sys/devices/platform/snd/snd.0/ --
`)
	each(t, h, func(t *testing.T, sys *sysfs.FS) {
		equal(t, "snd.0", public(auxiliary(t, sys, "snd.0")), sysfs.Auxiliary{Name: "snd.0"})
	})
}

func TestRDMADevicesOfASubFunctionAreItsOwn(t *testing.T) {
	for host, list := range map[string]map[string][]string{
		"mlx5-switchdev": {"mlx5_core.sf.4": {"mlx5_7"}, "mlx5_core.sf.7": {"mlx5_8"}, "mlx5_core.eth.0": nil},
		"mlx5-vdpa":      {"mlx5_core.sf.2": nil},
	} {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			for name, want := range list {
				got, err := sys.RDMAOf(auxiliary(t, sys, name))
				if err != nil {
					t.Error(err)
				}
				equal(t, name, got, want)
			}
		})
	}
}
