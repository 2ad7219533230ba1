package sysfs_test

import (
	"io/fs"
	"testing"

	"devinfo-cni.io/pkg/sysfs"
)

func TestVirtioDeviceHasFunctionAndVDPADeviceAbove(t *testing.T) {
	for host, list := range map[string][]sysfs.Virtio{
		"virtio-vm": {{Name: "virtio0", PCI: maybe(t, "0000:00:03.0")}, {Name: "virtio1", PCI: maybe(t, "0000:00:04.0")}},
		"igb-sriov": {{Name: "virtio3", PCI: maybe(t, "0000:02:00.0")}},
		"vdpa-sim":  {{Name: "virtio3", PCI: maybe(t, "0000:02:00.0")}, {Name: "virtio4", VDPA: "vdpa1"}},
		"vdpa-vf":   {{Name: "virtio3", PCI: maybe(t, "0000:02:00.0")}, {Name: "virtio5", PCI: maybe(t, "0000:02:00.2")}},
		"vdpa-vf-virtio": {
			{Name: "virtio3", PCI: maybe(t, "0000:02:00.0")}, {Name: "virtio5", PCI: maybe(t, "0000:02:00.2")},
			{Name: "virtio4", PCI: maybe(t, "0000:02:00.1")}, // its vDPA device is beside it
		},
		"mlx5-vdpa": {
			{Name: "virtio7", PCI: maybe(t, "0000:65:00.4")}, // its vDPA device is beside it
			{Name: "virtio8", PCI: maybe(t, "0000:65:00.0")}, {Name: "virtio9", PCI: maybe(t, "0000:65:00.0")},
		},
	} {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			if there, _ := fs.Glob(sys.Files(), "bus/virtio/devices/*"); len(there) != len(list) {
				t.Errorf("the host has %d virtio devices: %v", len(there), there)
			}
			for _, want := range list {
				got, ok, err := sys.Virtio(want.Name)
				if !ok || err != nil {
					t.Errorf("%s: %v, %v", want.Name, ok, err)
				}
				equal(t, host+" "+want.Name, got, want)
			}
		})
	}
}

func TestVirtioMACIsThatOfItsInterface(t *testing.T) {
	for host, list := range map[string]map[string]string{
		"mlx5-vdpa": {"virtio7": "02:65:00:00:00:02", "virtio8": "02:65:00:00:00:11", "virtio9": "02:65:00:00:00:10"},
		"vdpa-sim":  {"virtio4": "02:00:00:00:0d:01"},
		"virtio-vm": {"virtio0": "52:54:00:00:00:03", "virtio1": ""}, // moved to a pod
		"igb-sriov": {"virtio3": "", "virtio4": ""},                  // without interface, not there
		"i40e":      {"virtio0": ""},                                 // no virtio bus
	} {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			for name, want := range list {
				if got, ok, err := sys.VirtioMAC(name); got != want || ok != (want != "") || err != nil {
					t.Errorf("%s %s: %q, %v, %v", host, name, got, ok, err)
				}
			}
		})
	}
}

func TestNamesakeOfAVDPADeviceIsNotIt(t *testing.T) {
	h := made(t, `
-- sys/bus/vdpa/devices/card -> ../../../devices/elsewhere/card --
-- sys/bus/virtio/devices/virtio0 -> ../../../devices/platform/card/virtio0 --
-- sys/devices/elsewhere/card/ --
-- sys/devices/platform/card/virtio0/ --
`)
	each(t, h, func(t *testing.T, sys *sysfs.FS) {
		got, ok, err := sys.Virtio("virtio0")
		if !ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
		equal(t, "virtio0", got, sysfs.Virtio{Name: "virtio0"})
	})
}
