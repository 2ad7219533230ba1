package cdispec_test

import (
	"os"
	"path/filepath"
	"testing"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/test/difftest"
)

// group is a VF on vfio-pci with all fields set.
var group = cdispec.Device{
	Kind: "vendor.example/net.v2", Name: "6e0c-net1", IfName: "net1",
	InfoFile: "/run/infos/pod1", Info: &devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "0000:3b:00.3"}},
	Nodes: []cdispec.Node{
		{Path: "/dev/vfio/vfio", Type: "c", Major: 10, Minor: 196},
		{Path: "/dev/vfio/15", Type: "c", Major: 240},
	},
	Mounts: []cdispec.Mount{{Host: "/run/sockets/a", Container: "/run/vhost"}},
}

var must, equal = difftest.Must, difftest.Same

func spec(t *testing.T, a cdispec.Device) *specs.Spec {
	t.Helper()
	s, err := a.Spec()
	must(t, err)
	return s
}

func TestSpecHasOneDevice(t *testing.T) {
	equal(t, "spec", spec(t, group), &specs.Spec{
		Version: "0.6.0", Kind: "vendor.example/net.v2",
		Devices: []specs.Device{{Name: "6e0c-net1", ContainerEdits: specs.ContainerEdits{
			Env: []string{"DEVINFO_NET1=/var/run/k8s.cni.cncf.io/devinfo/net1.json", "DEVINFO_NET1_TYPE=pci", "DEVINFO_NET1_PCI_ADDRESS=0000:3b:00.3"},
			DeviceNodes: []*specs.DeviceNode{
				{Path: "/dev/vfio/vfio", Type: "c", Major: 10, Minor: 196, Permissions: "rw"},
				{Path: "/dev/vfio/15", Type: "c", Major: 240, Permissions: "rw"},
			},
			Mounts: []*specs.Mount{
				{HostPath: "/run/infos/pod1", ContainerPath: "/var/run/k8s.cni.cncf.io/devinfo/net1.json", Options: []string{"bind", "ro", "nosuid", "nodev", "noexec"}},
				{HostPath: "/run/sockets/a", ContainerPath: "/run/vhost", Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"}},
			},
		}}},
	})
}

func TestSpecHasOldestSufficientVersion(t *testing.T) {
	for _, test := range []struct{ kind, name, version string }{
		{cdispec.DefaultKind, "a", "0.3.0"},
		{cdispec.DefaultKind, "0", "0.5.0"},
		{"vendor.example/a.b", "a", "0.6.0"},
	} {
		got := spec(t, cdispec.Device{Kind: test.kind, Name: test.name, IfName: "net1"})
		if got.Version != test.version {
			t.Errorf("%s=%s: %s, want %s", test.kind, test.name, got.Version, test.version)
		}
	}
}

// attachments are devices that the CDI library must accept too, from an empty one to one with all allowed characters.
var attachments = map[string]cdispec.Device{
	"nothing to give": {Kind: cdispec.DefaultKind, Name: "c0ffee:net1", IfName: "net1"},
	"a group":         group,
	"odd names":       {Kind: "a/b", Name: cdispec.DeviceName("C0_ff.ee-", "é%_"), IfName: "é%_", InfoFile: "/run/infos/<&>"},
}

func TestCDILibraryFindsEveryDevice(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for _, a := range attachments {
		must(t, os.WriteFile(filepath.Join(dir, cdispec.FileName(a.Kind, a.Name)), cdispec.Encode(spec(t, a)), 0o644))
		want = append(want, cdispec.Qualified(a.Kind, a.Name))
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	must(t, err)
	if errs := cache.GetErrors(); len(errs) > 0 {
		t.Errorf("errors: %v", errs)
	}
	for _, device := range want {
		if cache.GetDevice(device) == nil {
			t.Errorf("no device %s among %q", device, cache.ListDevices())
		}
	}
	if got := cache.ListDevices(); len(got) != len(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSpecRejectsBadNamesAndPathsThatJSONAlters(t *testing.T) {
	for what, change := range map[string]func(*cdispec.Device){
		"kind":      func(d *cdispec.Device) { d.Kind = "vendor" },
		"name":      func(d *cdispec.Device) { d.Name = "a/b" },
		"interface": func(d *cdispec.Device) { d.IfName = "\xff" },
		"file":      func(d *cdispec.Device) { d.InfoFile = "/run/\xff" },
		"node":      func(d *cdispec.Device) { d.Nodes = []cdispec.Node{{Path: "/dev/\xff", Type: "c"}} },
		"relative":  func(d *cdispec.Device) { d.Nodes = []cdispec.Node{{Path: "dev/null", Type: "c"}} },
		"mount":     func(d *cdispec.Device) { d.Mounts = []cdispec.Mount{{Host: "/a", Container: "/b\x00"}} },
	} {
		d := group
		change(&d)
		if s, err := d.Spec(); err == nil {
			t.Errorf("%s: %s", what, cdispec.Encode(s))
		}
	}
}

func TestIsDevinfoSpecChecksNameAndVariable(t *testing.T) {
	ours := cdispec.Encode(spec(t, group))
	file := cdispec.FileName(group.Kind, group.Name)
	if !cdispec.IsDevinfoSpec(ours, file) {
		t.Error("a spec of this package is not recognized")
	}
	for name, text := range map[string]string{
		"nothing":        ``,
		"null":           `null`,
		"no device":      `{"cdiVersion": "0.6.0", "kind": "vendor.example/net.v2", "devices": []}`,
		"no variable":    `{"cdiVersion": "0.6.0", "kind": "vendor.example/net.v2", "devices": [{"name": "6e0c-net1", "containerEdits": {}}]}`,
		"other variable": `{"cdiVersion": "0.6.0", "kind": "vendor.example/net.v2", "devices": [{"name": "6e0c-net1", "containerEdits": {"env": ["A=b"]}}]}`,
		"two devices": `{"cdiVersion": "0.6.0", "kind": "vendor.example/net.v2", "devices": [
			{"name": "6e0c-net1", "containerEdits": {"env": ["DEVINFO_NET1="]}}, {"name": "b", "containerEdits": {"env": ["DEVINFO_NET1="]}}]}`,
	} {
		if cdispec.IsDevinfoSpec([]byte(text), file) {
			t.Errorf("%s: recognized as a spec of this package", name)
		}
	}
	if cdispec.IsDevinfoSpec(ours, cdispec.FileName(group.Kind, "other")) {
		t.Error("recognized in a file of another name")
	}
}
