package discovery_test

import (
	"errors"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
)

// Whatever the keys name, what is found of it is found again by its description, and
// keys that are in conflict name two devices.
func FuzzDeviceIDs(f *testing.F) {
	hosts := []*discovery.Finder{on(f, load(f, "mlx5-vdpa")), on(f, load(f, "mlx5-switchdev")), on(f, load(f, "vdpa-sim"))}
	for _, ids := range [][2]string{
		{"0000:65:00.4", "vdpa4"}, {"mlx5_core.sf.2", "0000:65:00.0"}, {"vdpa:0000:65:00.3", "0000:65:00.3"}, {"", "../../x"},
		{"mlx5_core.sf.4", ""}, {"vdpa0", "vdpa1"}, {"gpu-1", "0000:03:00.2"}, {"0000:99:00.0", "0000:03:00.2"},
	} {
		for n := range hosts {
			f.Add(ids[0], ids[1], uint8(n), true)
		}
	}
	f.Fuzz(func(t *testing.T, a, b string, host uint8, parent bool) {
		finder := hosts[int(host)%len(hosts)]
		target := discovery.Target{DeviceIDs: []config.NamedID{{Key: "deviceID", ID: a}, {Key: "pciBusID", ID: b}}, SubfunctionParent: parent}
		device, err := finder.Find(target)
		if err != nil {
			if conflict := (*discovery.ConflictError)(nil); !errors.As(err, &conflict) || conflict.DeviceA == conflict.DeviceB {
				t.Errorf("%q, %q: %v", a, b, err)
			}
			return
		}
		text := show(t, device, nil) // which compares Info and Facts
		if device.IsInterface || device.Shared || device.Info == nil {
			if device.IsInterface || device.Shared {
				t.Errorf("%q, %q: without an interface:\n%s", a, b, text)
			}
			return
		}
		written, err := devinfo.Parse(device.Info.Encode())
		if err != nil || string(written.Encode()) != string(device.Info.Encode()) {
			t.Fatalf("%q, %q: %s: %v", a, b, device.Info.Encode(), err)
		}
		target.Existing = written
		again, err := finder.Find(target)
		if err != nil || string(again.Info.Encode()) != string(device.Info.Encode()) {
			t.Errorf("%q, %q: with its file it is\n%s, %v", a, b, show(t, again, err), err)
		}
	})
}
