package devinfo_test

import (
	"path/filepath"
	"reflect"
	"testing"

	"devinfo-cni.io/devinfo"
)

const npwg = "testdata/npwg/"

func vhostUser(mode, path string) *devinfo.Info {
	return &devinfo.Info{Type: "vhost-user", Version: "1.1.0", VhostUser: &devinfo.VhostUser{Mode: mode, Path: path}}
}

// The examples of sections 4.3 and 6.1.2, with their errors corrected, and the expected information.
var examples = map[string]*devinfo.Info{
	"4.3-pci.json": {Type: "pci", Version: "1.1.0", PCI: &devinfo.PCI{
		Address: "0000:01:02.2", PFAddress: "0000:01:02.0"}},
	"4.3-vdpa.json": {Type: "vdpa", Version: "1.1.0", VDPA: &devinfo.VDPA{
		ParentDevice: "vdpa3", Driver: "vhost", Path: "/dev/vdpa-vhost0"}},
	"4.3-vhost-user.json": vhostUser("server", "/var/run/vhost.sock"),
	"6.1.2-net1.json": {Type: "pci", Version: "1.1.0", PCI: &devinfo.PCI{
		Address: "0000:18:02.5", PFAddress: "0000:18:00.0"}},
	"6.1.2-net2.json": {Type: "pci", Version: "1.1.0", PCI: &devinfo.PCI{
		Address: "0000:18:0a.2", VhostNet: "/dev/vhost-net", PFAddress: "0000:18:00.1"}},
	"6.1.2-net3.json": vhostUser("client", "/var/run/net3/vhost.sock"),
	"6.1.2-virtio0.json": {Type: "vdpa", Version: "1.1.0", VDPA: &devinfo.VDPA{
		ParentDevice: "vdpa2", Driver: "vhost", Path: "/dev/vhost-vdpa0",
		Address: "0000:02:01.6", PFAddress: "0000:02:01.0"}},
}

func TestExamplesOfSpecificationAreValid(t *testing.T) {
	files, err := filepath.Glob(npwg + "*.json")
	if err != nil || len(files) != len(examples) {
		t.Fatalf("%d files in %s (%v), want %d", len(files), npwg, err, len(examples))
	}
	for name, want := range examples {
		got, err := devinfo.ReadFile(npwg + name)
		if err != nil {
			t.Error(err)
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%swant\n%s", name, got.Encode(), want.Encode())
		}
		if v := got.Validate(); len(v) > 0 {
			t.Errorf("%s: %v", name, v)
		}
		if v := got.ValidateDeclared(); len(v) > 0 {
			t.Errorf("%s, declared: %v", name, v)
		}
	}
}
