package discovery_test

import (
	"errors"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
)

// A naming lets one source name a device.
type naming struct {
	source string
	apply  func(t *testing.T, target *discovery.Target, device string)
}

func pciInfo(device string) string {
	return `{"type": "pci", "pci": {"pci-address": "` + device + `"}}`
}

var namings = []naming{
	{"the configuration's deviceInfo", func(t *testing.T, target *discovery.Target, device string) {
		target.Declared = info(t, pciInfo(device))
	}},
	{"runtimeConfig.deviceID", func(t *testing.T, target *discovery.Target, device string) {
		target.DeviceIDs = ids("runtimeConfig.deviceID", device)
	}},
	{"the device-info file", func(t *testing.T, target *discovery.Target, device string) {
		target.Existing = info(t, pciInfo(device))
	}},
	{"the result's pciID", func(t *testing.T, target *discovery.Target, device string) { target.PCIID = device }},
	{"interface net1 (netlink)", func(t *testing.T, target *discovery.Target, device string) {
		target.Netns, target.IfName = pod, "net1" // which is on 0000:3b:00.3
	}},
}

func TestTwoSourcesThatNameDifferentDevicesConflict(t *testing.T) {
	f := on(t, load(t, "mlx5-legacy"))
	for n, second := range namings {
		for _, first := range namings[:n] {
			for _, other := range []string{"0000:3b:00.2", "0000:3b:00.0", "0000:99:00.0"} { // another VF, the PF, one that is not there
				var target discovery.Target
				first.apply(t, &target, other)
				second.apply(t, &target, "0000:3b:00.3")
				_, err := f.Find(target)
				var conflict *discovery.ConflictError
				want := discovery.ConflictError{
					SourceA: first.source, DeviceA: "the PCI function " + other,
					SourceB: second.source, DeviceB: "the PCI function 0000:3b:00.3",
				}
				if !errors.As(err, &conflict) || *conflict != want {
					t.Errorf("got  %v\nwant %v", err, &want)
				}

				target = discovery.Target{}
				first.apply(t, &target, "0000:3b:00.3")
				second.apply(t, &target, "0000:3b:00.3")
				if device, err := f.Find(target); err != nil || device.Info == nil {
					t.Errorf("%s and %s agree: %v", first.source, second.source, err)
				}
			}
		}
	}
}

func TestConflictIsFoundAmongAllSources(t *testing.T) {
	f := on(t, load(t, "mlx5-legacy"))
	for odd := range namings[:len(namings)-1] { // one of them against the rest
		var target discovery.Target
		for n, naming := range namings {
			device := "0000:3b:00.3"
			if n == odd {
				device = "0000:3b:00.4"
			}
			naming.apply(t, &target, device)
		}
		_, err := f.Find(target)
		if conflict := (*discovery.ConflictError)(nil); !errors.As(err, &conflict) || !strings.Contains(err.Error(), namings[odd].source+" names the PCI function 0000:3b:00.4") {
			t.Errorf("%s: %v", namings[odd].source, err)
		}
	}
}

func TestKeysThatNameDifferentDevicesConflict(t *testing.T) {
	const opaque = `warning: runtimeConfig.deviceID: "GPU-7f3a" is neither a PCI address nor an auxiliary or vDPA device of this node; it is taken as opaque`
	for name, test := range map[string]struct {
		host   string
		ids    [3]string // runtimeConfig.deviceID, deviceID, pciBusID
		parent bool
		want   string // the conflict, or facts without their sources
	}{
		"all the same":         {"mlx5-legacy", [3]string{"0000:3b:00.4", "0000:3b:00.4", "0000:3B:00.4"}, false, "pci 0000:3b:00.4"},
		"the runtime's":        {"mlx5-legacy", [3]string{"0000:3b:00.4", "0000:3b:00.3", ""}, false, "runtimeConfig.deviceID names the PCI function 0000:3b:00.4, but deviceID names the PCI function 0000:3b:00.3"},
		"the last":             {"mlx5-legacy", [3]string{"0000:3b:00.4", "0000:3b:00.4", "0000:3b:00.3"}, false, "runtimeConfig.deviceID names the PCI function 0000:3b:00.4, but pciBusID names the PCI function 0000:3b:00.3"},
		"one that is gone":     {"mlx5-legacy", [3]string{"", "0000:99:00.0", "0000:3b:00.3"}, false, "deviceID names the PCI function 0000:99:00.0, but pciBusID names the PCI function 0000:3b:00.3"},
		"vDPA and function":    {"mlx5-vdpa", [3]string{"", "vdpa4", "0000:65:00.4"}, false, "vdpa vdpa4"},
		"function and vDPA":    {"mlx5-vdpa", [3]string{"0000:65:00.4", "vdpa4", ""}, false, "vdpa vdpa4"},
		"vDPA and another":     {"mlx5-vdpa", [3]string{"", "vdpa4", "0000:65:00.3"}, false, "deviceID names the vDPA device vdpa4, but pciBusID names the PCI function 0000:65:00.3"},
		"SF and parent":        {"mlx5-switchdev", [3]string{"", "mlx5_core.sf.4", "0000:03:00.0"}, false, "deviceID names the auxiliary device mlx5_core.sf.4, but pciBusID names the PCI function 0000:03:00.0"},
		"SF for parent":        {"mlx5-switchdev", [3]string{"", "mlx5_core.sf.4", "0000:03:00.0"}, true, "pci 0000:03:00.0"},
		"opaque and address":   {"mlx5-legacy", [3]string{"GPU-7f3a", "GPU-7f3a", "0000:3b:00.4"}, false, "pci 0000:3b:00.4\n" + opaque},
		"opaque, and that all": {"mlx5-legacy", [3]string{"GPU-7f3a", "GPU-7f3a", ""}, false, " \n" + opaque},
	} {
		t.Run(name, func(t *testing.T) {
			target := discovery.Target{SubfunctionParent: test.parent}
			for n, key := range []string{"runtimeConfig.deviceID", "deviceID", "pciBusID"} {
				target.DeviceIDs = append(target.DeviceIDs, config.NamedID{Key: key, ID: test.ids[n]})
			}
			device, err := on(t, load(t, test.host)).Find(target)
			got := ""
			if err != nil {
				got = strings.TrimSuffix(err.Error(), ": they must be the same device")
			} else {
				typ := ""
				if device.Info != nil {
					typ = string(device.Info.Type)
				}
				got = typ + " " + discovery.Identity(device.Info)
				for _, w := range device.Warnings {
					got += "\nwarning: " + w
				}
			}
			if conflict := (*discovery.ConflictError)(nil); got != test.want || err != nil && !errors.As(err, &conflict) {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestDevicesOfDifferentKinds(t *testing.T) {
	vdpa := func(name string) string { return `{"type": "vdpa", "vdpa": {"parent-device": "` + name + `"}}` }
	for name, test := range map[string]struct {
		host, id, existing string
		parent             bool // subfunctionParent
		conflict           string
	}{
		"vDPA device and its VF":                 {host: "mlx5-vdpa", id: "vdpa4", existing: pciInfo("0000:65:00.4")},
		"VF and its vDPA device":                 {host: "mlx5-vdpa", id: "0000:65:00.4", existing: vdpa("vdpa4")},
		"unbound vDPA device and its VF":         {host: "mlx5-vdpa", id: "0000:65:00.5", existing: vdpa("vdpa5")},
		"VF and the vDPA device on its part":     {host: "pds-vdpa", id: "0000:b5:00.1", existing: vdpa("vdpa0")},
		"that part and its vDPA device":          {host: "pds-vdpa", id: "pds_core.vDPA.1", existing: vdpa("vdpa0")},
		"SF and its vDPA device":                 {host: "mlx5-vdpa", id: "mlx5_core.sf.2", existing: vdpa("vdpa6")},
		"SF and its parent, which stands for it": {host: "mlx5-switchdev", id: "mlx5_core.sf.4", existing: pciInfo("0000:03:00.0"), parent: true},
		"vDPA device and another VF": {host: "mlx5-vdpa", id: "vdpa4", existing: pciInfo("0000:65:00.3"),
			conflict: "deviceID names the vDPA device vdpa4, but the device-info file names the PCI function 0000:65:00.3"},
		"two vDPA devices": {host: "mlx5-vdpa", id: "vdpa4", existing: vdpa("vdpa5"),
			conflict: "deviceID names the vDPA device vdpa4, but the device-info file names the vDPA device vdpa5"},
		"two vDPA devices on SFs of one function": {host: "mlx5-vdpa", id: "vdpa6", existing: vdpa("vdpa7"),
			conflict: "deviceID names the vDPA device vdpa6, but the device-info file names the vDPA device vdpa7"},
		"SF and another's vDPA device": {host: "mlx5-vdpa", id: "mlx5_core.sf.3", existing: vdpa("vdpa6"),
			conflict: "deviceID names the auxiliary device mlx5_core.sf.3, but the device-info file names the vDPA device vdpa6"},
		"SF and its parent": {host: "mlx5-switchdev", id: "mlx5_core.sf.4", existing: pciInfo("0000:03:00.0"),
			conflict: "deviceID names the auxiliary device mlx5_core.sf.4, but the device-info file names the PCI function 0000:03:00.0"},
		"SF and another parent": {host: "mlx5-switchdev", id: "mlx5_core.sf.4", existing: pciInfo("0000:03:00.3"), parent: true,
			conflict: "deviceID names the auxiliary device mlx5_core.sf.4, but the device-info file names the PCI function 0000:03:00.3"},
		"two SFs of one parent": {host: "mlx5-vdpa", id: "mlx5_core.sf.2", existing: pciInfo("mlx5_core.sf.3"), parent: true,
			conflict: "deviceID names the auxiliary device mlx5_core.sf.2, but the device-info file names the auxiliary device mlx5_core.sf.3"},
		"vDPA device on an SF and the parent": {host: "mlx5-vdpa", id: "vdpa6", existing: pciInfo("0000:65:00.0"),
			conflict: "deviceID names the vDPA device vdpa6, but the device-info file names the PCI function 0000:65:00.0"},
		"simulator and a function": {host: "vdpa-sim", id: "vdpa0", existing: pciInfo("0000:02:00.0"),
			conflict: "deviceID names the vDPA device vdpa0, but the device-info file names the PCI function 0000:02:00.0"},
		"simulator and simulator": {host: "vdpa-sim", id: "vdpa0", existing: vdpa("vdpa1"),
			conflict: "deviceID names the vDPA device vdpa0, but the device-info file names the vDPA device vdpa1"},
	} {
		t.Run(name, func(t *testing.T) {
			target := byID(test.id)
			target.Existing, target.SubfunctionParent = info(t, test.existing), test.parent
			_, err := on(t, load(t, test.host)).Find(target)
			switch {
			case test.conflict == "" && err != nil:
				t.Error(err)
			case test.conflict != "" && (err == nil || err.Error() != test.conflict+": they must be the same device"):
				t.Errorf("got  %v\nwant %s: …", err, test.conflict)
			}
		})
	}
}
