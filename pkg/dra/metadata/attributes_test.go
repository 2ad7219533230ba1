package metadata_test

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/sysfs"
)

// attributes gives those on a captured host, and the warnings.
func attributes(t *testing.T, host string, info *devinfo.Info) (map[string]any, []string) {
	t.Helper()
	captured, err := hosttxt.Load("../../../testdata/hosts/" + host + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	var warnings []string
	got := metadata.Describer{Sys: sysfs.New(captured.Sys()), Warn: func(s string) { warnings = append(warnings, s) }}.Attributes(info)
	plain := map[string]any{}
	for name, value := range got {
		switch {
		case value.StringValue != nil && value.IntValue == nil:
			plain[name] = *value.StringValue
		case value.IntValue != nil && value.StringValue == nil:
			plain[name] = int(*value.IntValue)
		default:
			t.Errorf("%s is no string and no number: %v", name, value)
		}
		if _, id, _ := strings.Cut(name, "/"); len(id) > resourceapi.DeviceMaxIDLength {
			t.Errorf("the API takes no name as long as %s", id)
		}
	}
	return plain, warnings
}

func TestAttributesAreThoseOfDeviceInformationAndSysfs(t *testing.T) {
	for name, test := range map[string]struct {
		host string
		info devinfo.Info
		want map[string]any
	}{
		"VF": {"igb-sriov", devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{
			Address: "0000:41:10.0", PFAddress: "0000:41:00.0", RDMADevice: "rxe0,rxe1", Representor: "pf1vf0", VhostNet: "/dev/vhost-net",
		}}, map[string]any{
			"resource.kubernetes.io/pciBusID": "0000:41:10.0", "resource.kubernetes.io/pcieRoot": "pci0000:40", "resource.kubernetes.io/numaNode": 1,
			"devinfo-cni.io/type": "pci", "devinfo-cni.io/pfPCIBusID": "0000:41:00.0", "devinfo-cni.io/rdmaDevice": "rxe0,rxe1",
			"devinfo-cni.io/representor": "pf1vf0", "devinfo-cni.io/vhostNet": "/dev/vhost-net",
		}},
		"without a NUMA node": {"virtio-vm", devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "0000:00:03.0"}}, map[string]any{
			"resource.kubernetes.io/pciBusID": "0000:00:03.0", "resource.kubernetes.io/pcieRoot": "pci0000:00", "devinfo-cni.io/type": "pci",
		}},
		"in capitals": {"mlx5-legacy", devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "0000:3B:00.2", PFAddress: "0000:3B:00.0"}}, map[string]any{
			"resource.kubernetes.io/pciBusID": "0000:3b:00.2", "resource.kubernetes.io/pcieRoot": "pci0000:3a", "resource.kubernetes.io/numaNode": 0,
			"devinfo-cni.io/type": "pci", "devinfo-cni.io/pfPCIBusID": "0000:3b:00.0",
		}},
		"not of this host": {"virtio-vm", devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "0000:99:00.0"}}, map[string]any{
			"resource.kubernetes.io/pciBusID": "0000:99:00.0", "devinfo-cni.io/type": "pci",
		}},
		"vDPA": {"vdpa-vf", devinfo.Info{Type: devinfo.TypeVDPA, VDPA: &devinfo.VDPA{
			ParentDevice: "vdpa0", Driver: "vhost", Path: "/dev/vhost-vdpa-0", Address: "0000:41:00.0", PFAddress: "0000:01:00.0", Representor: "eth0_0",
		}}, map[string]any{
			"resource.kubernetes.io/pciBusID": "0000:41:00.0", "resource.kubernetes.io/pcieRoot": "pci0000:40", "resource.kubernetes.io/numaNode": 1,
			"devinfo-cni.io/type": "vdpa", "devinfo-cni.io/pfPCIBusID": "0000:01:00.0", "devinfo-cni.io/representor": "eth0_0",
			"devinfo-cni.io/vdpaParent": "vdpa0", "devinfo-cni.io/vdpaDriver": "vhost", "devinfo-cni.io/devicePath": "/dev/vhost-vdpa-0",
		}},
		"vhost-user": {"virtio-vm", devinfo.Info{Type: devinfo.TypeVhostUser, VhostUser: &devinfo.VhostUser{Mode: "server", Path: "/run/s"}}, map[string]any{
			"devinfo-cni.io/type": "vhost-user", "devinfo-cni.io/vhostUserMode": "server", "devinfo-cni.io/socketPath": "/run/s", "vhost-user-path": "/run/s",
		}},
		"memif": {"virtio-vm", devinfo.Info{Type: devinfo.TypeMemif, Memif: &devinfo.Memif{Role: "slave", Mode: "ip", Path: "/run/s"}}, map[string]any{
			"devinfo-cni.io/type": "memif", "devinfo-cni.io/memifRole": "slave", "devinfo-cni.io/memifMode": "ip", "devinfo-cni.io/socketPath": "/run/s",
		}},
		"without its map": {"virtio-vm", devinfo.Info{Type: devinfo.TypePCI}, map[string]any{"devinfo-cni.io/type": "pci"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings := attributes(t, test.host, &test.info)
			difftest.Equal(t, got, test.want)
			if len(warnings) > 0 {
				t.Error(warnings)
			}
		})
	}
}

func TestWhatTheAPIDoesNotTakeIsLeftOutWithAWarning(t *testing.T) {
	socket := "/" + strings.Repeat("s", resourceapi.DeviceAttributeMaxValueLength)
	for name, test := range map[string]struct {
		info    devinfo.Info
		want    map[string]any
		warning []string // a part of each
	}{
		"65 bytes": {devinfo.Info{Type: devinfo.TypeVhostUser, VhostUser: &devinfo.VhostUser{Mode: "client", Path: socket}},
			map[string]any{"devinfo-cni.io/type": "vhost-user", "devinfo-cni.io/vhostUserMode": "client"},
			[]string{"attribute devinfo-cni.io/socketPath is left out: \"" + socket + "\" has 65 bytes, at most 64 are allowed"}},
		"64 bytes": {devinfo.Info{Type: devinfo.TypeVhostUser, VhostUser: &devinfo.VhostUser{Mode: "client", Path: socket[:64]}},
			map[string]any{"devinfo-cni.io/type": "vhost-user", "devinfo-cni.io/vhostUserMode": "client", "devinfo-cni.io/socketPath": socket[:64], "vhost-user-path": socket[:64]}, nil},
		"no address": {devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "3b:00.2", PFAddress: "x"}},
			map[string]any{"devinfo-cni.io/type": "pci"}, []string{`pciBusID is left out: "3b:00.2"`, `pfPCIBusID is left out: "x"`}},
		"domain of five digits": {devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "10000:e1:00.1"}},
			map[string]any{"devinfo-cni.io/type": "pci", "resource.kubernetes.io/numaNode": 0}, []string{"10000:e1:00.1", "10000:e1:00.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings := attributes(t, "vmd", &test.info)
			difftest.Equal(t, got, test.want)
			if len(warnings) != len(test.warning) {
				t.Fatalf("warnings %q, want %q", warnings, test.warning)
			}
			for n := range warnings {
				if !strings.Contains(warnings[n], test.warning[n]) {
					t.Errorf("warning %q, want %q", warnings[n], test.warning[n])
				}
			}
		})
	}
}

func TestWithoutDeviceInformationThereAreNoAttributes(t *testing.T) {
	if got := (metadata.Describer{}).Attributes(nil); got != nil {
		t.Error(got)
	}
}
