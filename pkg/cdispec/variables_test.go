package cdispec_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/cdispec"
)

// facts are the variables of net1 with their values.
func facts(a cdispec.Device, t *testing.T) map[string]string {
	a.Kind, a.Name, a.IfName = cdispec.DefaultKind, "a", "net1"
	list := map[string]string{}
	for _, v := range spec(t, a).Devices[0].ContainerEdits.Env[1:] {
		name, value, _ := strings.Cut(v, "=")
		list[strings.TrimPrefix(name, "DEVINFO_NET1_")] = value
	}
	return list
}

// The table of docs/injection.md names the keys of the format that each variable may have its
// value from; a device with all keys has all those variables of its type, and no others.
func TestFactsAreTheTablesOfTheDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/injection.md")
	schema, err2 := os.ReadFile("../../docs/schema/device-info.json")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	var format struct {
		Properties map[devinfo.Type]struct{ Properties map[string]any }
	}
	must(t, json.Unmarshal(schema, &format))
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
		must(t, err)
		info, err := devinfo.Parse(encoded)
		must(t, err)
		equal(t, string(of), facts(cdispec.Device{Info: info, Mounts: []cdispec.Mount{{Host: "/x", Container: "/dir"}}}, t), want)
	}
}

func TestWhatIsNoVariableIsLeftOut(t *testing.T) {
	for _, test := range []struct {
		pci  devinfo.PCI
		want []string
	}{
		{devinfo.PCI{}, []string{"TYPE"}},
		{devinfo.PCI{Address: "0000:3b:00.3", RDMADevice: "a\x00b"}, []string{"PCI_ADDRESS", "TYPE"}},
		{devinfo.PCI{Address: strings.Repeat("x", 5000), RDMADevice: "mlx5_2"}, []string{"RDMA_DEVICE", "TYPE"}},
	} {
		got := slices.Sorted(maps.Keys(facts(cdispec.Device{Info: &devinfo.Info{Type: devinfo.TypePCI, PCI: &test.pci}}, t)))
		equal(t, "names", got, test.want)
	}
	socket := &devinfo.Info{Type: devinfo.TypeVhostUser, VhostUser: &devinfo.VhostUser{Path: "/not/given"}}
	equal(t, "socket", facts(cdispec.Device{Info: socket}, t), map[string]string{"TYPE": "vhost-user"})
}
