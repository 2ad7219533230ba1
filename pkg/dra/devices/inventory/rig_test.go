package inventory_test

import (
	"testing"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/test/difftest"
)

const driver = "cni.dra.networking.x-k8s.io"

// everything is a configuration that selects all devices. Multus may attach the exclusive ones.
const everything = `devices:
- select: device.attributes["devinfo-cni.io"].kind in ["vf", "sf", "vdpa"]
  sharing: exclusive
  resourceName: example.com/vf
  attributes: {physicalNetwork: physnet1}
- select: "true"
  sharing: shared
  attachments: 100
  bandwidth: 25G
`

func rules(t testing.TB, configuration string) inventory.Rules {
	t.Helper()
	r, err := inventory.ParseRules([]byte(configuration))
	must(t, err)
	return r
}

// host parses a capture.
func host(t testing.TB, text []byte) inventory.Host {
	t.Helper()
	file, err := capturefile.Parse(text)
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

// input returns the input of Decide for a current API server and a node without holders.
func input() inventory.DecideInput { return inventory.DecideInput{Driver: driver, Sharing: true} }

// pool returns the published devices of a host.
func pool(t testing.TB, h inventory.Host, configuration string) []inventory.Slice {
	t.Helper()
	return inventory.Slices(inventory.Decide(read(t, h), rules(t, configuration), input()), nil)
}

// decision returns the decision about a device.
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
