package sysfs_test

import (
	"io/fs"
	"testing"

	"devinfo-cni.io/pkg/sysfs"
)

// vdpas are all vDPA devices of all captured hosts.
func vdpas(t *testing.T) map[string][]sysfs.VDPA {
	return map[string][]sysfs.VDPA{
		"mlx5-vdpa": {
			{Name: "vdpa4", Driver: "virtio", PCI: maybe(t, "0000:65:00.4"), Virtio: []string{"virtio7"}}, // beside it
			{Name: "vdpa5", PCI: maybe(t, "0000:65:00.5")},                                                // unbound
			{Name: "vdpa6", Driver: "virtio", PCI: maybe(t, "0000:65:00.0"), Aux: "mlx5_core.sf.2", SF: "mlx5_core.sf.2", Virtio: []string{"virtio8", "virtio9"}},
			{Name: "vdpa7", Driver: "virtio", PCI: maybe(t, "0000:65:00.0"), Aux: "mlx5_core.sf.3", SF: "mlx5_core.sf.3", Virtio: []string{"virtio8", "virtio9"}},
			{Name: "vdpa:0000:65:00.3", Driver: "vhost", PCI: maybe(t, "0000:65:00.3"), Vhost: "vhost-vdpa-1"},
		},
		"pds-vdpa": {
			{Name: "vdpa0", Driver: "vhost", PCI: maybe(t, "0000:b5:00.1"), Aux: "pds_core.vDPA.1", Vhost: "vhost-vdpa-0"}, // which is no SF
			{Name: "vdpa1", Driver: "virtio", PCI: maybe(t, "0000:b5:00.2"), Aux: "pds_core.vDPA.2", Virtio: []string{"virtio3"}},
		},
		"vdpa-sim": {
			{Name: "vdpa0", Driver: "vhost", Vhost: "vhost-vdpa-0"}, // a simulator: no function
			{Name: "vdpa1", Driver: "virtio", Virtio: []string{"virtio4"}},
		},
		"vdpa-vf": {
			{Name: "vpvdpa0", Driver: "vhost", PCI: maybe(t, "0000:02:00.1"), Vhost: "vhost-vdpa-0"},
		},
		"vdpa-vf-virtio": {
			{Name: "vpvdpa0", Driver: "virtio", PCI: maybe(t, "0000:02:00.1"), Virtio: []string{"virtio4"}}, // beside it
		},
	}
}

func TestVDPADeviceHasDriverChildAndFunction(t *testing.T) {
	for host, list := range vdpas(t) {
		t.Run(host, func(t *testing.T) {
			each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
				if there, _ := fs.Glob(sys.Files(), "bus/vdpa/devices/*"); len(there) != len(list) {
					t.Errorf("the host has %d vDPA devices: %v", len(there), there)
				}
				for _, want := range list {
					got, ok, err := sys.VDPA(want.Name)
					if !ok || err != nil {
						t.Fatalf("%s: %v, %v", want.Name, ok, err)
					}
					equal(t, want.Name, public(got), want)
				}
			})
		})
	}
}

func TestVDPADeviceOfAHostWithoutTheBusIsAbsent(t *testing.T) {
	each(t, load(t, "mlx5-legacy"), func(t *testing.T, sys *sysfs.FS) {
		if v, ok, err := sys.VDPA("vdpa0"); ok || err != nil {
			t.Errorf("%+v, %v", v, err)
		}
		if list, err := sys.VDPAOn(function(t, sys, "0000:3b:00.2")); len(list) > 0 || err != nil {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

func TestVDPADeviceOnAnotherDriverHasItsName(t *testing.T) {
	h := made(t, `
-- sys/bus/vdpa/drivers/vduse/ --
-- sys/bus/vdpa/devices/v0 -> ../../../devices/virtual/v0 --
-- sys/devices/virtual/v0/driver -> ../../../bus/vdpa/drivers/vduse --
`)
	each(t, h, func(t *testing.T, sys *sysfs.FS) {
		got, _, err := sys.VDPA("v0")
		if err != nil {
			t.Error(err)
		}
		equal(t, "v0", public(got), sysfs.VDPA{Name: "v0", Driver: "vduse"})
	})
}

func TestFunctionCarriesTheVDPADevicesRightBelowItOrBelowItsParts(t *testing.T) {
	for host, functions := range map[string]map[string][]string{
		"mlx5-vdpa": {
			"0000:65:00.0": nil, // a PF with VFs is not searched; those of its SFs are not its own either
			"0000:65:00.2": nil, "0000:65:00.3": {"vdpa:0000:65:00.3"}, "0000:65:00.4": {"vdpa4"}, "0000:65:00.5": {"vdpa5"},
		},
		"pds-vdpa":       {"0000:b5:00.0": nil, "0000:b5:00.1": {"vdpa0"}, "0000:b5:00.2": {"vdpa1"}, "0000:b5:00.3": nil},
		"vdpa-vf":        {"0000:02:00.0": nil, "0000:02:00.1": {"vpvdpa0"}, "0000:02:00.2": nil},
		"vdpa-vf-virtio": {"0000:02:00.1": {"vpvdpa0"}},
		"vdpa-sim":       {"0000:02:00.0": nil},
		"igb-sriov":      {"0000:01:10.0": nil},
	} {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			for a, want := range functions {
				list, err := sys.VDPAOn(function(t, sys, a))
				equal(t, host+" "+a, names(t, list, err), want)
			}
		})
	}
}

func TestSubFunctionCarriesTheVDPADeviceRightBelowIt(t *testing.T) {
	for host, subFunctions := range map[string]map[string][]string{
		"mlx5-vdpa":      {"mlx5_core.sf.2": {"vdpa6"}, "mlx5_core.sf.3": {"vdpa7"}},
		"mlx5-switchdev": {"mlx5_core.sf.4": nil},
	} {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			for name, want := range subFunctions {
				list, err := sys.VDPAOnAuxiliary(auxiliary(t, sys, name))
				equal(t, host+" "+name, names(t, list, err), want)
			}
		})
	}
}

func TestCarriedVDPADevicesAreWholeInNumericalOrderAndNotThoseOfSFs(t *testing.T) {
	h := made(t, `
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/bus/vdpa/drivers/vhost_vdpa/ --
-- sys/bus/vdpa/devices/vdpa10 -> ../../../devices/pci0000:00/0000:01:00.0/vdpa10 --
-- sys/bus/vdpa/devices/vdpa9 -> ../../../devices/pci0000:00/0000:01:00.0/vdpa9 --
-- sys/bus/vdpa/devices/vdpa11 -> ../../../devices/pci0000:00/0000:01:00.0/x.sf.1/vdpa11 --
-- sys/bus/auxiliary/devices/x.sf.1 -> ../../../devices/pci0000:00/0000:01:00.0/x.sf.1 --
-- sys/devices/pci0000:00/0000:01:00.0/x.sf.1/vdpa11/ --
-- sys/bus/vdpa/devices/net -> ../../../devices/elsewhere/net --
-- sys/devices/elsewhere/net/ --
-- sys/devices/pci0000:00/0000:01:00.0/net/eth0/ --
-- sys/devices/pci0000:00/0000:01:00.0/sriov_numvfs --
0
-- sys/devices/pci0000:00/0000:01:00.0/vdpa10/driver -> ../../../../bus/vdpa/drivers/vhost_vdpa --
-- sys/devices/pci0000:00/0000:01:00.0/vdpa10/vhost-vdpa-3/ --
-- sys/devices/pci0000:00/0000:01:00.0/vdpa9/ --
`)
	each(t, h, func(t *testing.T, sys *sysfs.FS) {
		got, err := sys.VDPAOn(function(t, sys, "0000:01:00.0"))
		if err != nil {
			t.Fatal(err)
		}
		for n := range got {
			got[n] = public(got[n])
		}
		equal(t, "list", got, []sysfs.VDPA{
			{Name: "vdpa9", PCI: maybe(t, "0000:01:00.0")},
			{Name: "vdpa10", Driver: "vhost", PCI: maybe(t, "0000:01:00.0"), Vhost: "vhost-vdpa-3"},
		})
	})
}

func names(t *testing.T, list []sysfs.VDPA, err error) (names []string) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	for _, v := range list {
		names = append(names, v.Name)
	}
	return names
}

func TestManagementDeviceIsTheOneThatItIsOn(t *testing.T) {
	for host, list := range map[string]map[string]string{
		"mlx5-vdpa": {"vdpa:0000:65:00.3": "pci/0000:65:00.3", "vdpa6": "auxiliary/mlx5_core.sf.2"},
		"pds-vdpa":  {"vdpa0": "auxiliary/pds_core.vDPA.1"},
		"vdpa-sim":  {"vdpa0": ""},
	} {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			for name, want := range list {
				v, ok, err := sys.VDPA(name)
				if err != nil || !ok {
					t.Errorf("%s: %v, %v", name, ok, err)
				}
				equal(t, name, v.Management(), want)
			}
		})
	}
}
