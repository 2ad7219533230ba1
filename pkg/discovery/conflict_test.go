package discovery_test

import (
	"errors"
	"testing"

	"devinfo-cni.io/pkg/discovery"
)

func pciInfo(device string) string {
	return `{"type": "pci", "pci": {"pci-address": "` + device + `"}}`
}

// namings are the sources, and how a question lets each name a device; net1 is on 0000:3b:00.3.
var namings = [][2]string{
	{"the configuration's deviceInfo", " declared=pci:"}, {"runtimeConfig.deviceID", " runtimeConfig.deviceID="}, {"the device-info file", " file=pci:"},
	{"the result's pciID", " pciID="}, {"interface net1 (netlink)", " pod=net1 #"},
}

func TestTwoSourcesThatNameDifferentDevicesConflict(t *testing.T) {
	for n, second := range namings {
		for _, first := range namings[:n] {
			for _, other := range []string{"0000:3b:00.2", "0000:3b:00.0", "0000:99:00.0"} { // another VF, the PF, one that is not there
				f, target := question(t, "mlx5-legacy"+first[1]+other+second[1]+"0000:3b:00.3")
				_, err := f.Find(target)
				var conflict *discovery.ConflictError
				want := discovery.ConflictError{
					SourceA: first[0], DeviceA: "the PCI function " + other,
					SourceB: second[0], DeviceB: "the PCI function 0000:3b:00.3",
				}
				if !errors.As(err, &conflict) || *conflict != want {
					t.Errorf("got  %v\nwant %v", err, &want)
				}
			}
			f, target := question(t, "mlx5-legacy"+first[1]+"0000:3b:00.3"+second[1]+"0000:3b:00.3")
			if device, err := f.Find(target); err != nil || device.Info == nil {
				t.Errorf("%s and %s agree: %v", first[0], second[0], err)
			}
		}
	}
}
