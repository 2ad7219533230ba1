package cdispec_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/utils"
	"k8s.io/apimachinery/pkg/util/validation"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/test/difftest"
)

// group is a VF on vfio-pci with all fields set.
var group = cdispec.Device{
	Kind: "vendor.example/net.v2", Name: "6e0c-net1", IfName: "net1",
	InfoFile: "/run/infos/pod1", Info: &devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "0000:3b:00.3"}},
	Nodes: []cdispec.DeviceNode{
		{Path: "/dev/vfio/vfio", Type: "c", Major: 10, Minor: 196},
		{Path: "/dev/vfio/15", Type: "c", Major: 240},
	},
	Mounts: []cdispec.Mount{{Host: "/run/sockets/a", Container: "/run/vhost"}},
}

func spec(t *testing.T, a cdispec.Device) *specs.Spec {
	t.Helper()
	s, err := a.Spec()
	difftest.Must(t, err)
	return s
}

func TestSpecHasOneDevice(t *testing.T) {
	difftest.Same(t, "spec", spec(t, group), &specs.Spec{
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
		vendor, class := parser.ParseQualifier(a.Kind)
		name := cdispec.FileName(a.Kind, a.Name)
		difftest.Equal(t, name, cdi.GenerateTransientSpecName(vendor, class, a.Name)+".json")
		difftest.Must(t, os.WriteFile(filepath.Join(dir, name), cdispec.Encode(spec(t, a)), 0o644))
		want = append(want, cdispec.Qualified(a.Kind, a.Name))
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	difftest.Must(t, err)
	difftest.Same(t, "errors", len(cache.GetErrors()), 0)
	for _, device := range want {
		difftest.Same(t, device, cache.GetDevice(device) != nil, true)
	}
	difftest.Equal(t, len(cache.ListDevices()), len(want))
}

func TestSpecRejectsBadNamesAndPathsThatJSONAlters(t *testing.T) {
	for what, change := range map[string]func(*cdispec.Device){
		"kind":      func(d *cdispec.Device) { d.Kind = "vendor" },
		"name":      func(d *cdispec.Device) { d.Name = "a/b" },
		"interface": func(d *cdispec.Device) { d.IfName = "\xff" },
		"file":      func(d *cdispec.Device) { d.InfoFile = "/run/\xff" },
		"node":      func(d *cdispec.Device) { d.Nodes = []cdispec.DeviceNode{{Path: "/dev/\xff", Type: "c"}} },
		"relative":  func(d *cdispec.Device) { d.Nodes = []cdispec.DeviceNode{{Path: "dev/null", Type: "c"}} },
		"mount":     func(d *cdispec.Device) { d.Mounts = []cdispec.Mount{{Host: "/a", Container: "/b\x00"}} },
	} {
		d := group
		change(&d)
		_, err := d.Spec()
		difftest.Same(t, what, err != nil, true)
	}
}

func TestIsDevinfoSpecChecksNameAndVariable(t *testing.T) {
	for what, d := range attachments {
		difftest.Same(t, what, cdispec.IsDevinfoSpec(cdispec.Encode(spec(t, d)), cdispec.FileName(d.Kind, d.Name)), true)
	}
	file := cdispec.FileName(group.Kind, group.Name)
	for name, text := range map[string]string{
		"nothing":        ``,
		"null":           `null`,
		"no device":      `{"cdiVersion": "0.6.0", "kind": "vendor.example/net.v2", "devices": []}`,
		"no variable":    `{"cdiVersion": "0.6.0", "kind": "vendor.example/net.v2", "devices": [{"name": "6e0c-net1", "containerEdits": {}}]}`,
		"other variable": `{"cdiVersion": "0.6.0", "kind": "vendor.example/net.v2", "devices": [{"name": "6e0c-net1", "containerEdits": {"env": ["A=b"]}}]}`,
		"two devices": `{"cdiVersion": "0.6.0", "kind": "vendor.example/net.v2", "devices": [
			{"name": "6e0c-net1", "containerEdits": {"env": ["DEVINFO_NET1="]}}, {"name": "b", "containerEdits": {"env": ["DEVINFO_NET1="]}}]}`,
	} {
		difftest.Same(t, name, cdispec.IsDevinfoSpec([]byte(text), file), false)
	}
	difftest.Same(t, "in a file of another name", cdispec.IsDevinfoSpec(cdispec.Encode(spec(t, group)), cdispec.FileName(group.Kind, "other")), false)
}

func TestDeviceNameEscapesOnlyInvalidBytes(t *testing.T) {
	for _, test := range [][3]string{
		{"c0ffee", "net1", "c0ffee:net1"},
		{"c0ffee", "eth0.100", "c0ffee:eth0.100"},
		{"c0ffee", "net-1_a", "c0ffee:net-1_a"},
		{"c0ffee", "-", "c0ffee::2d"},
		{"c0ffee", "net_", "c0ffee:net:5f"},
		{"c0ffee", "a@b:c", "c0ffee:a:40b:3ac"},
		{"c0ffee", "é", "c0ffee::c3:a9"},
	} {
		difftest.Same(t, test[0]+", "+test[1], cdispec.DeviceName(test[0], test[1]), test[2])
	}
}

func TestVariableDiffersForEveryInterface(t *testing.T) {
	for name, want := range map[string]string{
		"net1": "DEVINFO_NET1", "net-1": "DEVINFO_NET_2D1", "net_1": "DEVINFO_NET_5F1", "NET1": "DEVINFO__4E_45_541", "a9z0": "DEVINFO_A9Z0", "eth0.100": "DEVINFO_ETH0_2E100", "é": "DEVINFO__C3_A9",
	} {
		difftest.Same(t, name, cdispec.Variable(name), want)
	}
	for number, want := range []string{"DEVINFO_NICS_REQUEST_VF=pci-x", "DEVINFO_NICS_REQUEST_VF_2=pci-x"} {
		d := group
		d.Request = &cdispec.Request{Claim: "nics", Name: "vf", Number: number, Device: "pci-x"}
		difftest.Equal(t, spec(t, d).Devices[0].ContainerEdits.Env[0], want)
	}
}

// A container may have any interfaces and devices of claims at once.
func TestNoTwoDevicesHaveTheSameVariable(t *testing.T) {
	info := &devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "0000:3b:00.3", RDMADevice: "mlx5_1"}}
	var all []cdispec.Device
	for _, ifName := range []string{"a", "a-1", "a-request-b", "a_REQUEST_B", "a_request_b", "request", "requestb", "a_2", "2dnic"} {
		all = append(all, cdispec.Device{IfName: ifName})
	}
	names := []string{"a", "1", "2d1", "a-1", "a.1", "a2d1", "a-2d1", "request", "a-request-b", "type", "b-2", "b"}
	for _, claim := range names {
		for _, request := range names {
			for _, number := range []int{0, 1, 9, 44, 45, 100} { // the hexadecimal code of - is 2D, which is 45
				all = append(all, cdispec.Device{Request: &cdispec.Request{Claim: claim, Name: request, Number: number, Device: "pci-x"}})
			}
		}
	}
	owner := map[string]int{}
	for n, d := range all {
		d.Kind, d.Name, d.Info = cdispec.DefaultKind, "d", info
		for _, variable := range spec(t, d).Devices[0].ContainerEdits.Env {
			name, value, _ := strings.Cut(variable, "=")
			if other, taken := owner[name]; taken {
				t.Errorf("%s: both of %+v and %+v", name, all[other], d)
			}
			if owner[name] = n; d.Request != nil && value == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
				t.Errorf("%+v: %s", d, variable)
			}
		}
	}
}

// FuzzNames checks that the CDI library accepts every device name, and that two attachments have different names.
func FuzzNames(f *testing.F) {
	f.Add("c0ffee", "net1", "c0ffee", "net:1")
	f.Add("c0-", "net_", "c0", "-net_")
	f.Add("a", ":2d", "a", "-")
	f.Add("A", "net1", "a", "NET1")
	f.Fuzz(func(t *testing.T, id1, name1, id2, name2 string) {
		if utils.ValidateContainerID(id1) != nil || utils.ValidateContainerID(id2) != nil || name1 == "" || name2 == "" {
			return // invalid in CNI
		}
		one, two := cdispec.DeviceName(id1, name1), cdispec.DeviceName(id2, name2)
		if err := parser.ValidateDeviceName(one); err != nil || cdispec.CheckName(one) != nil {
			t.Errorf("%q, %q: %v", id1, name1, err)
		}
		if same := id1 == id2 && name1 == name2; (one == two) != same {
			t.Errorf("%q, %q and %q, %q: %s and %s", id1, name1, id2, name2, one, two)
		}
		if a, b := cdispec.Variable(name1), cdispec.Variable(name2); (a == b) != (name1 == name2) || strings.Trim(a, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
			t.Errorf("%q and %q: %s and %s", name1, name2, a, b)
		}
	})
}

// FuzzCheck checks that CheckKind and CheckName accept the same texts as the CDI library, except that a vendor must be a DNS
// subdomain, whose letters may be capitals, and for the maximum lengths.
func FuzzCheck(f *testing.F) {
	long := func(n int) string { return strings.Repeat("a", n) }
	subdomain := strings.Repeat(long(62)+".", 4)
	for _, s := range []string{"", "a", "0", "a-", "-a", "a:b", "a/b", "a.b/c", "0/a", "a/b/c", "a=b", "a b", "aé", "A_z.9", "a/", "/a",
		subdomain + "a/" + long(63), subdomain + "aa/a", "a/" + long(64), "a_b/c", "a..b/c", "a-.b/c", "a.-b/c", "A.2-b/c_d", long(63) + ".a/b", long(64) + ".a/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		vendor, class := parser.ParseQualifier(s)
		kind := cdispec.CheckKind(s) == nil
		want := parser.IsQualifiedName(s+"=a") && len(vendor) <= 253 && len(class) <= 63
		for label := range strings.SplitSeq(strings.ToLower(vendor), ".") {
			want = want && len(validation.IsDNS1123Label(label)) == 0
		}
		if kind != want {
			t.Errorf("kind %q: accepted: %t, want %t", s, kind, want)
		}
		if name := cdispec.CheckName(s) == nil; name != parser.IsQualifiedName("a/b="+s) {
			t.Errorf("name %q: accepted: %t", s, name)
		}
	})
}

// facts returns the values of net1's variables by suffix.
func facts(a cdispec.Device, t *testing.T) map[string]string {
	a.Kind, a.Name, a.IfName = cdispec.DefaultKind, "a", "net1"
	list := map[string]string{}
	for _, v := range spec(t, a).Devices[0].ContainerEdits.Env[1:] {
		name, value, _ := strings.Cut(v, "=")
		list[strings.TrimPrefix(name, "DEVINFO_NET1_")] = value
	}
	return list
}

// The table in docs/reference.md lists the keys that each variable takes its value from. A device with all
// keys must have exactly the variables of its type.
func TestVariablesMatchReferenceTable(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference.md")
	schema, err2 := os.ReadFile("../../../docs/schema/device-info.json")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	var format struct {
		Properties map[devinfo.Type]struct{ Properties map[string]any }
	}
	difftest.Must(t, json.Unmarshal(schema, &format))
	rows := regexp.MustCompile("(?m)^\\| `DEVINFO_NET1_([A-Z_]+)` \\| (.*?) \\|").FindAllStringSubmatch(string(text), -1)
	for _, of := range []devinfo.Type{devinfo.TypePCI, devinfo.TypeVDPA, devinfo.TypeVhostUser, devinfo.TypeMemif} {
		device, want := map[string]string{}, map[string]string{}
		for key := range format.Properties[of].Properties {
			device[key] = "/dir/" + key
		}
		for _, row := range rows {
			for _, m := range regexp.MustCompile("`([a-z-]+)(?:\\.([a-z-]+))?`").FindAllStringSubmatch(row[2], -1) {
				if m[1] == "type" {
					want[row[1]] = string(of)
				} else if value := device[m[2]]; m[1] == string(of) {
					want[row[1]] = value // "" = the schema has no such key
				}
			}
		}
		encoded, err := json.Marshal(map[string]any{"type": of, "version": devinfo.SpecVersion, string(of): device})
		difftest.Must(t, err)
		info, err := devinfo.Parse(encoded)
		difftest.Must(t, err)
		difftest.Same(t, string(of), facts(cdispec.Device{Info: info, Mounts: []cdispec.Mount{{Host: "/x", Container: "/dir"}}}, t), want)
	}
}

func TestVariablesLeaveOutInvalidValues(t *testing.T) {
	for _, test := range []struct {
		pci  devinfo.PCI
		want []string
	}{
		{devinfo.PCI{}, []string{"TYPE"}},
		{devinfo.PCI{Address: "0000:3b:00.3", RDMADevice: "a\x00b"}, []string{"PCI_ADDRESS", "TYPE"}},
		{devinfo.PCI{Address: strings.Repeat("x", 4097), RDMADevice: "\x00"}, []string{"TYPE"}},
		{devinfo.PCI{Address: strings.Repeat("x", 4096), RDMADevice: "mlx5_2"}, []string{"PCI_ADDRESS", "RDMA_DEVICE", "TYPE"}},
	} {
		got := slices.Sorted(maps.Keys(facts(cdispec.Device{Info: &devinfo.Info{Type: devinfo.TypePCI, PCI: &test.pci}}, t)))
		difftest.Same(t, "names", got, test.want)
	}
	socket := &devinfo.Info{Type: devinfo.TypeVhostUser, VhostUser: &devinfo.VhostUser{Path: "/not/given"}}
	difftest.Same(t, "socket", facts(cdispec.Device{Info: socket}, t), map[string]string{"TYPE": "vhost-user"})
}

func TestRDMADevicesAreListedOnce(t *testing.T) {
	pci := func(rdma string) *devinfo.Info {
		return &devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{RDMADevice: rdma}}
	}
	memif := &devinfo.Info{Type: devinfo.TypeMemif, Memif: &devinfo.Memif{}}
	for want, infos := range map[string][]*devinfo.Info{
		"": {nil, memif, pci(""), pci("a\x00")}, "DEVINFO_RDMA_DEVICES=b:1,a:1": {memif, pci("b"), pci(""), pci("a,b"), nil, pci("a")},
	} {
		difftest.Equal(t, cdispec.RDMADevices(infos), want)
	}
}
