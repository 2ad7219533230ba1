package metadata_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

var (
	share  = "7d1c3a2f-6f3e-4b8f-9d0a-3c5f3f0e7a11"
	since  = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	vf     = view.Device{Type: "pci", Device: "0000:03:00.2", RDMA: "mlx5_2"}
	device = metadata.Device{Driver: "cni.dra.networking.x-k8s.io", Pool: "node-a", Name: "cni", ShareID: &share, Since: since}
)

// vfText is the JSON of vf in the status.
const vfText = `"devinfo-cni.io/device":{"type":"pci","device":"0000:03:00.2","rdma":"mlx5_2"}`

func TestStatusFollowsDeviceConfigurationAPI(t *testing.T) {
	network := &resourceapi.NetworkDeviceData{InterfaceName: "net1"}
	got := device.Attached(json.RawMessage(` {"cniVersion": "1.0.0", "ips": []} `), network)
	id := string(share)
	want := resourceapi.AllocatedDeviceStatus{
		Driver: "cni.dra.networking.x-k8s.io", Pool: "node-a", Device: "cni", ShareID: &id,
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: "True", Reason: "NetworkInterfaceReady", Message: "CNI-DRA-Driver has configured the device.", LastTransitionTime: since,
		}},
		Data: &runtime.RawExtension{Raw: []byte(`{"cniVersion":"1.0.0","ips":[]}`)}, NetworkData: network,
	}
	difftest.Equal(t, got, want)
	want.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "NetworkInterfaceNotReady", Message: "no such master: eth9", LastTransitionTime: since}}
	want.Data, want.NetworkData = nil, nil
	difftest.Equal(t, device.Failed("no such master: eth9"), want)

	unshared := device
	unshared.ShareID, want.ShareID = nil, nil
	difftest.Equal(t, unshared.Failed("no such master: eth9"), want)
}

// The status contains the device even without a network.
func TestEachStatusContainsDevice(t *testing.T) {
	d := device
	d.Shown = vf
	if s := d.Bare(); string(s.Data.Raw) != `{`+vfText+`}` || s.Conditions != nil || s.NetworkData != nil {
		t.Errorf("%+v", s)
	}
	if s := d.Failed("no"); string(s.Data.Raw) != `{`+vfText+`}` {
		t.Errorf("%+v", s)
	}
}

func TestLongErrorIsCutBetweenRunes(t *testing.T) {
	message := device.Failed("x" + strings.Repeat("é", 1<<15)).Conditions[0].Message
	if len(message) != 32<<10-1 || !utf8.ValidString(message) {
		t.Errorf("%d bytes, ending in %q", len(message), message[len(message)-4:])
	}
	difftest.Equal(t, device.Failed("a\xffb").Conditions[0].Message, "a\ufffdb")
}

func TestDataHasAtMost10KiB(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	lengthy := vf
	lengthy.RDMA = long(10240)
	for name, test := range map[string]struct {
		result, want, warning string
		of                    view.Device
	}{
		"short":        {`{"b":1,"a":12345678901}`, `{"a":12345678901,"b":1}`, "", view.Device{}},
		"at the limit": {`{"a":"` + long(10240-8) + `"}`, `{"a":"` + long(10240-8) + `"}`, "", view.Device{}},
		"one too many": {`{"a":"` + long(10240-7) + `"}`, "", "data is left out: it has 10241 bytes, at most 10240 are allowed", view.Device{}},
		"white space":  {`{"a":` + strings.Repeat(" ", 10240) + `1}`, `{"a":1}`, "", view.Device{}},
		"escapes":      {`{"a":"` + strings.Repeat("<", 2000) + `"}`, "", "data is left out: it has 12008 bytes, at most 10240 are allowed", view.Device{}},
		"a list":       {`[1]`, "", "data is left out: the CNI result is not a JSON object", view.Device{}},
		"null":         {`null`, "", "data is left out: the CNI result is not a JSON object", view.Device{}},
		"none":         {``, "", "data is left out: the CNI result is not a JSON object", view.Device{}},
		"garbage":      {`{"a":1}}`, "", "data is left out: the CNI result is not a JSON object", view.Device{}},

		// If the data is too long, the device is kept and the result is left out.
		"with a result":      {`{"ips":[]}`, `{` + vfText + `,"ips":[]}`, "", vf},
		"with a long result": {`{"a":"` + long(10240) + `"}`, `{` + vfText + `}`, "the CNI result is left out of data: it has 10327 bytes, at most 10240 are allowed", vf},
		"with garbage":       {`[]`, `{` + vfText + `}`, "data is left out: the CNI result is not a JSON object", vf},
		"lengthy itself":     {`{}`, "", "data is left out: it has 10314 bytes, at most 10240 are allowed", lengthy},
	} {
		data, warnings := metadata.Data(json.RawMessage(test.result), test.of)
		got := ""
		if data != nil {
			got = string(data.Raw)
		}
		difftest.Same(t, name, got, test.want)
		difftest.Same(t, name+": warnings", strings.Join(warnings, "; "), test.warning)
	}
}

// attributes returns the attributes on a captured host, and the warnings.
func attributes(t *testing.T, host string, info *devinfo.Info) (map[string]any, []string) {
	t.Helper()
	var warnings []string
	got := metadata.Attributes(info, sysfs.New(capturetest.Load(t, host).Sys()), func(s string) { warnings = append(warnings, s) })
	plain := map[string]any{}
	for name, value := range got {
		switch {
		case value.StringValue != nil && value.IntValue == nil:
			plain[name] = *value.StringValue
		case value.IntValue != nil && value.StringValue == nil:
			plain[name] = int(*value.IntValue)
		case value.StringValues != nil:
			plain[name] = value.StringValues
		default:
			t.Errorf("%s is no string, no number and no list of strings: %v", name, value)
		}
		if _, id, _ := strings.Cut(name, "/"); len(id) > resourceapi.DeviceMaxIDLength {
			t.Errorf("the API takes no name as long as %s", id)
		}
	}
	return plain, warnings
}

func TestAttributesComeFromDeviceInfoAndSysfs(t *testing.T) {
	for name, test := range map[string]struct {
		host string
		info devinfo.Info
		want map[string]any
	}{
		"VF": {"igb-sriov", devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{
			Address: "0000:41:10.0", PFAddress: "0000:41:00.0", RDMADevice: "rxe0,rxe1", Representor: "pf1vf0", VhostNet: "/dev/vhost-net",
		}}, map[string]any{
			"resource.kubernetes.io/pciBusID": "0000:41:10.0", "resource.kubernetes.io/pcieRoot": "pci0000:40", "resource.kubernetes.io/numaNode": 1,
			"devinfo-cni.io/type": "pci", "devinfo-cni.io/pfPCIBusID": "0000:41:00.0", "devinfo-cni.io/rdmaDevice": "rxe0,rxe1", "devinfo-cni.io/rdmaDevices": []string{"rxe0", "rxe1"},
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
		got, warnings := attributes(t, test.host, &test.info)
		difftest.Same(t, name, got, test.want)
		difftest.Same(t, name+": warnings", warnings, []string(nil))
	}
}

func TestFieldsBeyondAPILimitsAreLeftOutWithWarning(t *testing.T) {
	socket := "/" + strings.Repeat("s", resourceapi.DeviceAttributeMaxValueLength)
	for name, test := range map[string]struct {
		info    devinfo.Info
		want    map[string]any
		warning []string // parts of the warnings
	}{
		"65 bytes": {devinfo.Info{Type: devinfo.TypeVhostUser, VhostUser: &devinfo.VhostUser{Mode: "client", Path: socket}},
			map[string]any{"devinfo-cni.io/type": "vhost-user", "devinfo-cni.io/vhostUserMode": "client"},
			[]string{"attribute devinfo-cni.io/socketPath is left out: \"" + socket + "\" has 65 bytes, at most 64 are allowed"}},
		"64 bytes": {devinfo.Info{Type: devinfo.TypeVhostUser, VhostUser: &devinfo.VhostUser{Mode: "client", Path: socket[:64]}},
			map[string]any{"devinfo-cni.io/type": "vhost-user", "devinfo-cni.io/vhostUserMode": "client", "devinfo-cni.io/socketPath": socket[:64], "vhost-user-path": socket[:64]}, nil},
		"many RDMA devices": {devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{RDMADevice: strings.Repeat("mlx5_0,", 10) + "mlx5_1"}},
			map[string]any{"devinfo-cni.io/type": "pci", "devinfo-cni.io/rdmaDevices": append(slices.Repeat([]string{"mlx5_0"}, 10), "mlx5_1")},
			[]string{"attribute devinfo-cni.io/rdmaDevice is left out: "}},
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
				difftest.Contains(t, warnings[n], test.warning[n])
			}
		})
	}
}
