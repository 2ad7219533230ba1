package discovery_test

import (
	"errors"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/discovery"
)

func TestEachSourceNamesTheDevice(t *testing.T) {
	facts := func(source string) string {
		return `
			pci.pci-address 0000:3b:00.3 < ` + source + `
			pci.pf-pci-address 0000:3b:00.0 < /sys/bus/pci/devices/0000:3b:00.3/physfn
			pci.rdma-device mlx5_9,mlx5_10 < /sys/bus/pci/devices/0000:3b:00.3/infiniband`
	}
	vf := `{"type": "pci", "pci": {"pci-address": "0000:3B:00.3"}}`
	f := on(t, load(t, "mlx5-legacy"))
	for name, test := range map[string]struct {
		target discovery.Target
		want   string
	}{
		"declared":  {discovery.Target{Declared: info(t, vf)}, facts("the configuration's deviceInfo")},
		"deviceID":  {discovery.Target{DeviceIDs: ids("runtimeConfig.deviceID", "0000:3B:00.3")}, facts("runtimeConfig.deviceID")},
		"existing":  {discovery.Target{Existing: info(t, vf)}, facts("the device-info file")},
		"pciID":     {discovery.Target{PCIID: "0000:3b:00.3"}, facts("the result's pciID")},
		"interface": {inPod("net1"), facts("interface net1 (netlink)") + "\nin netns"},
		"first of all five": {discovery.Target{
			Declared: info(t, vf), DeviceIDs: ids("pciBusID", "0000:3b:00.3"), Existing: info(t, vf), PCIID: "0000:3b:00.3",
			Netns: pod, IfName: "net1",
		}, facts("the configuration's deviceInfo") + "\nin netns"},
		"first of four": {discovery.Target{
			DeviceIDs: ids("pciBusID", "0000:3b:00.3"), Existing: info(t, vf), PCIID: "0000:3b:00.3", Netns: pod, IfName: "net1",
		}, facts("pciBusID") + "\nin netns"},
		"of none": {discovery.Target{}, ""},
	} {
		t.Run(name, func(t *testing.T) { find(t, f, test.target, test.want) })
	}
}

func TestDeviceThatIsNotThereIsMissing(t *testing.T) {
	f := on(t, load(t, "mlx5-vdpa"))
	f.Interfaces = interfaces{"net1": {Name: "net1", Bus: "pci", Parent: "0000:99:00.0"}}
	for name, test := range map[string]struct {
		target discovery.Target
		want   string
	}{
		"declared": {discovery.Target{Declared: info(t, `{"type": "pci", "pci": {"pci-address": "0000:99:00.0"}}`)},
			"missing: the configuration's deviceInfo names the PCI function 0000:99:00.0, which is not on this node"},
		"declared vdpa": {discovery.Target{Declared: info(t, `{"type": "vdpa", "vdpa": {"parent-device": "vdpa99"}}`)},
			"missing: the configuration's deviceInfo names the vDPA device vdpa99, which is not on this node"},
		"deviceID": {byID("0000:99:00.0"),
			"missing: deviceID names the PCI function 0000:99:00.0, which is not on this node"},
		"existing": {discovery.Target{Existing: info(t, `{"type": "vdpa", "vdpa": {"parent-device": "0000:99:00.0"}}`)},
			"missing: the device-info file names the vDPA device 0000:99:00.0, which is not on this node"},
		"pciID": {discovery.Target{PCIID: "0000:99:00.0"},
			"missing: the result's pciID names the PCI function 0000:99:00.0, which is not on this node"},
		"interface": {inPod("net1"), `
			in netns
			missing: interface net1 (netlink) names the PCI function 0000:99:00.0, which is not on this node`},
		"with a type that it cannot have": {discovery.Target{DeviceIDs: ids("deviceID", "0000:99:00.0"), Declared: info(t, `{"type": "vdpa"}`)},
			"missing: deviceID names the PCI function 0000:99:00.0, which is not on this node"},
	} {
		t.Run(name, func(t *testing.T) { find(t, f, test.target, test.want) })
	}
}

func TestVDPADeviceThatIsNotThereConflictsWithNoFunction(t *testing.T) {
	f := on(t, load(t, "mlx5-vdpa"))
	for _, id := range []string{"0000:65:00.4", "mlx5_core.sf.2"} { // either could have carried it
		target := byID(id)
		target.Existing = info(t, `{"type": "vdpa", "vdpa": {"parent-device": "vdpa99"}}`)
		find(t, f, target, "missing: the device-info file names the vDPA device vdpa99, which is not on this node")
	}
	target := byID("vdpa4")
	target.Existing = info(t, `{"type": "vdpa", "vdpa": {"parent-device": "vdpa99"}}`)
	find(t, f, target, "conflict: deviceID names the vDPA device vdpa4, but the device-info file names the vDPA device vdpa99: they must be the same device")
}

func TestNameThatIsNoDeviceIsOpaque(t *testing.T) {
	f := on(t, load(t, "mlx5-vdpa"))
	for _, id := range []string{"GPU-7f3a", "65:00.2", "mlx5_core.sf.99", "vdpa99", "../../etc", "/dev/vfio/42", strings.Repeat("x", 300)} {
		find(t, f, byID(id), `warning: deviceID: "`+id+`" is neither a PCI address nor an auxiliary or vDPA device of this node; it is taken as opaque`)
		find(t, f, discovery.Target{PCIID: id}, `warning: the result's pciID: "`+id+`" is no device of this node`)
		find(t, f, discovery.Target{Existing: info(t, `{"type": "pci", "pci": {"pci-address": "`+id+`"}}`)},
			`warning: the device-info file: "`+strings.ToLower(id)+`" is no device of this node`)
	}
	target := inPod("net1")
	target.DeviceIDs = ids("deviceID", "GPU-7f3a")
	find(t, on(t, load(t, "vmd")), target, `
		pci.pci-address 10000:e1:00.1 < interface net1 (netlink)
		pci.pf-pci-address 10000:e1:00.0 < /sys/bus/pci/devices/10000:e1:00.1/physfn
		in netns
		warning: deviceID: "GPU-7f3a" is neither a PCI address nor an auxiliary or vDPA device of this node; it is taken as opaque`)
}

func TestSubFunctionIsDescribedByItsParentOnlyIfAskedFor(t *testing.T) {
	f := on(t, load(t, "mlx5-switchdev"))
	for _, test := range []struct{ id, on string }{
		{"mlx5_core.sf.4", `
			pci.pci-address 0000:03:00.0 < deviceID
			pci.rdma-device mlx5_7 < /sys/bus/auxiliary/devices/mlx5_core.sf.4/infiniband
			pci.representor-device en3f0pf0sf88 < devlink ports of pci/0000:03:00.0`},
		{"mlx5_core.sf.7", `
			pci.pci-address 0000:03:00.3 < deviceID
			pci.pf-pci-address 0000:03:00.0 < /sys/bus/pci/devices/0000:03:00.3/physfn
			pci.rdma-device mlx5_8 < /sys/bus/auxiliary/devices/mlx5_core.sf.7/infiniband`}, // not the VF's own eth5
	} {
		target := byID(test.id)
		find(t, f, target, `undescribable: the auxiliary device `+test.id+` cannot be described: the specification has no type for a sub-function, `+
			`and its parent's PCI address would hand the whole parent to a VM; "subfunctionParent": true writes it all the same`)
		target.SubfunctionParent = true
		find(t, f, target, test.on)
	}
}

func TestSubFunctionByItsInterface(t *testing.T) {
	f, target := onHostNetwork(t, load(t, "mlx5-switchdev")), inPod("enp3s0f0s88")
	target.SubfunctionParent = true
	find(t, f, target, `
		pci.pci-address 0000:03:00.0 < interface enp3s0f0s88 (netlink)
		pci.rdma-device mlx5_7 < /sys/bus/auxiliary/devices/mlx5_core.sf.4/infiniband
		pci.representor-device en3f0pf0sf88 < devlink ports of pci/0000:03:00.0
		in netns`)
}

func TestSocketHasThePathOfTheResult(t *testing.T) {
	f := on(t, load(t, "i40e"))
	const path = "/var/lib/vhost/sock"
	for _, declare := range []bool{true, false} {
		for typ, want := range map[string]string{
			"vhost-user": "vhost-user.path " + path + " < the result's socketPath",
			"memif":      "memif.path " + path + " < the result's socketPath",
		} {
			given := info(t, `{"type": "`+typ+`", "`+typ+`": {"path": "/elsewhere", "mode": "client"}}`)
			target := discovery.Target{Existing: given}
			if declare {
				target = discovery.Target{Declared: given}
			}
			find(t, f, target, "") // what is declared or stands in a file is no fact of ours
			target.SocketPath = path
			find(t, f, target, want)

			// A socket has no PCI device, whoever names one; its interface, if any, is noted.
			target.DeviceIDs, target.PCIID = ids("deviceID", "0000:18:02.2"), "0000:18:02.3"
			target.Netns, target.IfName, target.FollowLower = pod, "net2", true
			find(t, f, target, want+"\nin netns")
		}
	}
}

func TestSocketWhosePathReadersMangleIsUndescribable(t *testing.T) {
	for _, path := range []string{"/run/a b", "/run/a=b", `/run/a\b`, "/run/a\nb", "run/s"} {
		for _, typ := range []string{"vhost-user", "memif"} {
			device, err := on(t, load(t, "i40e")).Find(discovery.Target{Declared: info(t, `{"type": "`+typ+`"}`), SocketPath: path})
			if undescribable := (*discovery.UndescribableError)(nil); err != nil || device.Info != nil || !errors.As(device.Problem, &undescribable) {
				t.Errorf("%q: %s", path, show(t, device, err))
			}
		}
	}
}

func TestSocketOfUnknownTypeIsUndescribable(t *testing.T) {
	find(t, on(t, load(t, "i40e")), discovery.Target{SocketPath: "/run/s"},
		`undescribable: the socket /run/s (the result's socketPath) cannot be described: nothing says whether it is vhost-user or memif; declare "deviceInfo": {"type": …}`)
}

func TestIdentityIsWhatNamesTheDevice(t *testing.T) {
	if got := discovery.Identity(nil); got != "" {
		t.Errorf("of nothing: %q", got)
	}
	for text, want := range map[string]string{
		`{}`:              "",
		`{"type": "pci"}`: "",
		`{"pci": {"pci-address": "0000:01:00.0"}}`:                "",
		`{"type": "pci", "pci": {"pci-address": "0000:0A:00.0"}}`: "0000:0a:00.0",
		`{"type": "vdpa"}`: "",
		`{"type": "vdpa", "vdpa": {"pci-address": "0000:0A:00.0"}}`:                           "0000:0a:00.0",
		`{"type": "vdpa", "vdpa": {"parent-device": "Vdpa0", "pci-address": "0000:0A:00.0"}}`: "Vdpa0",
		`{"type": "vhost-user", "vhost-user": {"path": "/Run/s"}}`:                            "/Run/s",
		`{"type": "vhost-user", "memif": {"path": "/run/s"}}`:                                 "",
		`{"type": "memif", "memif": {"path": "/run/m"}}`:                                      "/run/m",
		`{"type": "memif"}`: "",
	} {
		if got := discovery.Identity(info(t, text)); got != want {
			t.Errorf("of %s: %q, want %q", text, got, want)
		}
	}
}
