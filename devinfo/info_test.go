package devinfo_test

import (
	"reflect"
	"testing"

	"devinfo-cni.io/devinfo"
)

func TestTheDeviceIsTheMapOfTheType(t *testing.T) {
	i := full()
	for typ, want := range map[devinfo.Type]devinfo.Device{
		devinfo.TypePCI: i.PCI, devinfo.TypeVDPA: i.VDPA, devinfo.TypeVhostUser: i.VhostUser, devinfo.TypeMemif: i.Memif, "": nil, "other": nil,
	} {
		i.Type = typ
		if got := i.Device(); got != want {
			t.Errorf("%s: got %#v", typ, got)
		}
		if got := (&devinfo.Info{Type: typ}).Device(); got != nil { // also no nil of a type
			t.Errorf("%s without map: got %#v", typ, got)
		}
	}
	var none *devinfo.Info
	if got := none.Device(); got != nil {
		t.Errorf("of nil: %#v", got)
	}
}

func TestMapsAreThoseThatAreThere(t *testing.T) {
	for text, want := range map[string][]devinfo.Type{
		`{}`: nil, `{"type": "pci"}`: nil, `{"pci": 5}`: nil, `{"type": "pci", "memif": {}, "vdpa": {}}`: {devinfo.TypeVDPA, devinfo.TypeMemif},
	} {
		if got := parse(t, text).Maps(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q", text, got)
		}
	}
}

func TestKeysAreTheSpecifications(t *testing.T) {
	for of, want := range map[devinfo.Type][]string{
		"":                    {"type", "version", "pci", "vdpa", "vhost-user", "memif"},
		devinfo.TypePCI:       {"pci-address", "vhost-net", "rdma-device", "pf-pci-address", "representor-device"},
		devinfo.TypeVDPA:      {"parent-device", "driver", "path", "pci-address", "pf-pci-address", "representor-device"},
		devinfo.TypeVhostUser: {"mode", "path"},
		devinfo.TypeMemif:     {"role", "path", "mode"},
		"version":             nil,
		"other":               nil,
	} {
		if got := devinfo.Keys(of); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q", of, got)
		}
	}
}
