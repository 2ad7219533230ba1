package inventory_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/hosttxt"
)

const (
	hosts  = "../../../../testdata/hosts/"
	driver = "cni.dra.networking.x-k8s.io"
)

// everything is a configuration that names all devices.
const everything = `devices:
- select: device.attributes["devinfo-cni.io"].kind in ["vf", "sf", "vdpa"]
  as: exclusive
  attributes: {physicalNetwork: physnet1}
- select: "true"
  as: shared
  attachments: 100
  bandwidth: 25G
`

func rules(t testing.TB, configuration string) inventory.Rules {
	t.Helper()
	r, err := inventory.ParseRules([]byte(configuration))
	must(t, err)
	return r
}

// names are those of the captured hosts.
func names(t testing.TB) (list []string) {
	t.Helper()
	files, err := filepath.Glob(hosts + "*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d captured hosts, %v", len(files), err)
	}
	for _, f := range files {
		list = append(list, strings.TrimSuffix(filepath.Base(f), ".txtar"))
	}
	return list
}

func captured(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(hosts + name + ".txtar")
	must(t, err)
	return data
}

// host parses the text of one.
func host(t testing.TB, text []byte) inventory.Host {
	t.Helper()
	file, err := hosttxt.Parse(text)
	must(t, err)
	h, err := inventory.Captured(file)
	must(t, err)
	return h
}

func read(t testing.TB, h inventory.Host) []inventory.Device {
	t.Helper()
	devices, warnings, err := inventory.Read(h)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, warnings %q", err, warnings)
	}
	return devices
}

// situation is an API server of today, and nobody on the node.
func situation() inventory.Situation { return inventory.Situation{Driver: driver, Sharing: true} }

// pool is what is published of a host.
func pool(t testing.TB, h inventory.Host, configuration string) []inventory.Slice {
	t.Helper()
	return inventory.Slices(inventory.Decide(read(t, h), rules(t, configuration), situation()), nil, nil)
}

// without is the host after an interface was moved to another network namespace: sysfs
// and netlink tell nothing of it, but that its device has one.
func without(t testing.TB, text []byte, ifName string) []byte {
	t.Helper()
	archive := txtar.Parse(text)
	kept := archive.Files[:0]
	for _, f := range archive.Files {
		if strings.Contains(f.Name+"/", "/net/"+ifName+"/") || strings.Contains(f.Name, "/net/"+ifName+" ") {
			if dir, ok := strings.CutSuffix(f.Name, ifName+"/ifindex"); ok {
				kept = append(kept, txtar.File{Name: dir})
			}
			continue
		}
		if f.Name == "netlink/ip-link.json" {
			f.Data = withoutLine(t, f.Data, `"ifname":"`+ifName+`"`)
		}
		kept = append(kept, f)
	}
	archive.Files = kept
	return txtar.Format(archive)
}

// withoutLine drops the line of a JSON array, one element on a line, that has the text.
func withoutLine(t testing.TB, data []byte, text string) []byte {
	t.Helper()
	var kept [][]byte
	for line := range bytes.Lines(bytes.Trim(data, "[]\n")) {
		if !bytes.Contains(line, []byte(text)) {
			kept = append(kept, bytes.TrimRight(line, ",\n"))
		}
	}
	return []byte("[\n" + string(bytes.Join(kept, []byte(",\n"))) + "\n]\n")
}

// decision gives what is decided of a device.
func decision(t testing.TB, all []inventory.Decision, name string) inventory.Decision {
	t.Helper()
	for _, c := range all {
		if c.Device.Name == name {
			return c
		}
	}
	t.Fatalf("there is no device %s", name)
	return inventory.Decision{}
}

var must = difftest.Must
