package binding_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices/binding"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/test/difftest"
)

func on(address string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	return map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{inventory.PCIBusID: {StringValue: &address}}
}

// A device and its sharing mode.
type allocated struct {
	inventory.Device
	as inventory.SharingMode
}

func devices() map[string]allocated {
	const own, shared = inventory.Exclusive, inventory.Shared
	return map[string]allocated{
		"vf":      {inventory.Device{Name: "pci-0000-3b-00-2", Ref: hostdev.Ref{Kind: hostdev.VF, PCI: "0000:3b:00.2", IfName: "ens1f0v0"}}, own},
		"vfio":    {inventory.Device{Name: "pci-0000-3b-00-4", Ref: hostdev.Ref{Kind: hostdev.VF, PCI: "0000:3b:00.4"}, Driver: "vfio-pci"}, own},
		"sf":      {inventory.Device{Name: "aux-sf4", Ref: hostdev.Ref{Kind: hostdev.SF, Aux: "mlx5_core.sf.4", IfName: "enp3s0f0s88"}}, own},
		"vdpa":    {inventory.Device{Name: "vdpa-vdpa4", Ref: hostdev.Ref{Kind: hostdev.VDPA, VDPA: "vdpa4"}, Attributes: on("0000:3b:00.5")}, own},
		"vdpa-sf": {inventory.Device{Name: "vdpa-vdpa6", Ref: hostdev.Ref{Kind: hostdev.VDPA, VDPA: "vdpa6", Aux: "mlx5_core.sf.2"}}, own},
		"virtio":  {inventory.Device{Name: "vdpa-vdpa1", Ref: hostdev.Ref{Kind: hostdev.VDPA, VDPA: "vdpa1", IfName: "eth1"}}, own},
		"nic":     {inventory.Device{Name: "pci-0000-01-00-0", Ref: hostdev.Ref{Kind: hostdev.NIC, PCI: "0000:01:00.0", IfName: "eth1"}}, own},
		"usb":     {inventory.Device{Name: "net-usb0", Ref: hostdev.Ref{Kind: hostdev.NIC, IfName: "usb0"}}, own},
		"uplink":  {inventory.Device{Name: "pci-0000-02-00-0", Ref: hostdev.Ref{Kind: hostdev.PF, PCI: "0000:02:00.0", IfName: "eth2"}}, shared},
		"bond":    {inventory.Device{Name: "net-bond0", Ref: hostdev.Ref{Kind: hostdev.Bond, IfName: "bond0"}}, shared},
		"bridge":  {inventory.Device{Name: "net-br0", Ref: hostdev.Ref{Kind: hostdev.Bridge, IfName: "br0"}}, shared},
		"ovs":     {inventory.Device{Name: "net-br-ex", Ref: hostdev.Ref{Kind: hostdev.OVS, IfName: "br-ex"}}, shared},
	}
}

// bind binds a device to a list of plugins.
func bind(t *testing.T, device string, how cniconfig.DeviceKeys, plugins ...string) (added string, deviceID string, err error) {
	t.Helper()
	d, ok := devices()[device]
	if !ok {
		t.Fatalf("no device %s", device)
	}
	list := `{"cniVersion":"1.0.0","name":"net","plugins":[` + strings.Join(plugins, ",") + `]}`
	got, deviceID, err := binding.Configure([]byte(list), d.Device, d.as, how)
	if err != nil {
		return "", "", err
	}
	var before, after struct {
		CNIVersion, Name string
		Plugins          []map[string]any
	}
	difftest.Must(t, errors.Join(json.Unmarshal([]byte(list), &before), json.Unmarshal(got, &after)))
	var all []string
	for n, p := range after.Plugins {
		for key, v := range p {
			if had, there := before.Plugins[n][key]; !there || had == "" {
				all = append(all, fmt.Sprintf("%s.%s=%v", p["type"], key, v))
				delete(p, key)
				delete(before.Plugins[n], key)
			}
		}
	}
	difftest.Same(t, "list without the added keys", after, before)
	return strings.Join(all, " "), deviceID, nil
}

const capable = `,"capabilities":{"deviceID":true,"mac":true}}`

func TestDeviceIsWrittenToDefaultKeyOfPlugin(t *testing.T) {
	for _, test := range []struct {
		device, plugins string
		added, deviceID string
	}{
		{"vf", `{"type":"sriov","vlan":7}`, "sriov.deviceID=0000:3b:00.2", ""},
		{"vfio", `{"type":"sriov"}`, "sriov.deviceID=0000:3b:00.4", ""},
		{"vf", `{"type":"ib-sriov"}`, "ib-sriov.deviceID=0000:3b:00.2", ""},
		{"vf", `{"type":"host-device"}`, "host-device.pciBusID=0000:3b:00.2", ""},
		{"vf", `{"type":"host-device"` + capable, "host-device.pciBusID=0000:3b:00.2", "0000:3b:00.2"},
		{"nic", `{"type":"host-device"}`, "host-device.pciBusID=0000:01:00.0", ""},
		{"usb", `{"type":"host-device"}`, "host-device.device=usb0", ""},
		{"sf", `{"type":"host-device"` + capable, "", "mlx5_core.sf.4"},
		{"virtio", `{"type":"host-device"}`, "host-device.device=eth1", ""},
		{"vf", `{"type":"ovs","bridge":"br-int"}`, "ovs.deviceID=0000:3b:00.2", ""},
		{"vdpa", `{"type":"ovs"}`, "ovs.deviceID=0000:3b:00.5", ""},
		{"ovs", `{"type":"ovs"}`, "ovs.bridge=br-ex", ""},
		{"vf", `{"type":"accelerated-bridge"}`, "accelerated-bridge.deviceID=0000:3b:00.2", ""},
		{"bridge", `{"type":"bridge"}`, "bridge.bridge=br0", ""},
		{"uplink", `{"type":"macvlan","mode":"bridge"}`, "macvlan.master=eth2", ""},
		{"bond", `{"type":"vlan","master":"bond0","vlanId":7}`, "", ""},
		{"bond", `{"type":"ipvlan","master":""}`, "ipvlan.master=bond0", ""},
		{"ovs", `{"type":"macvlan"}`, "macvlan.master=br-ex", ""},
		{"nic", `{"type":"macvlan"}`, "macvlan.master=eth1", ""},
		{"vf", `{"type":"sriov","deviceID":"0000:3B:00.2"}`, "", ""},
		{"vf", `{"type":"host-device","device":"ens1f0v0"}`, "host-device.pciBusID=0000:3b:00.2", ""},
		{"vf", `{"type":"new"` + capable, "", "0000:3b:00.2"},
		{"uplink", `{"type":"macvlan"}|{"type":"devinfo"` + capable, "macvlan.master=eth2", ""},
		{"vf", `{"type":"sriov"}|{"type":"tuning"}`, "sriov.deviceID=0000:3b:00.2", ""},
		{"vf", `{"type":"sriov"}|{"type":"rdma"}|{"type":"devinfo"` + capable,
			"sriov.deviceID=0000:3b:00.2 rdma.deviceID=0000:3b:00.2 devinfo.deviceID=0000:3b:00.2", "0000:3b:00.2"},
	} {
		added, id, err := bind(t, test.device, nil, strings.Split(test.plugins, "|")...)
		if added != test.added || id != test.deviceID || err != nil {
			t.Errorf("%s in %s: added %q, deviceID %q, %v", test.device, test.plugins, added, id, err)
		}
	}
}

func TestRefusalNamesBothDevices(t *testing.T) {
	for _, test := range []struct{ device, plugins, rule string }{
		{"vf", `{"type":"sriov","deviceID":"0000:3b:00.7"}`, `plugin sriov: the config has deviceID: "0000:3b:00.7", but device pci-0000-3b-00-2 (vf, 0000:3b:00.2, ens1f0v0) is allocated`},
		{"vf", `{"type":"sriov","DeviceID":"0000:3b:00.7"}`, `plugin sriov: the config has DeviceID: "0000:3b:00.7", but device pci-0000-3b-00-2`},
		{"vf", `{"type":"host-device","hwaddr":"02:00:00:00:00:01"}`, `plugin host-device: the config has hwaddr: "02:00:00:00:00:01", but device`},
		{"vf", `{"type":"host-device","device":"eth9"}`, `plugin host-device: the config has device: "eth9", but device`},
		{"sf", `{"type":"host-device","pciBusID":"0000:3b:00.2"` + capable, `plugin host-device: the config has pciBusID: "0000:3b:00.2", but device aux-sf4 (sf, mlx5_core.sf.4, enp3s0f0s88) is allocated`},
		{"bond", `{"type":"macvlan","master":"eth9"}`, `plugin macvlan: the config has master: "eth9", but device net-bond0 (bond, bond0) is allocated`},
		{"bond", `{"type":"macvlan","master":7}`, `plugin macvlan: the config has master: 7, but device`},
		{"bridge", `{"type":"bridge","bridge":"br1"}`, `plugin bridge: the config has bridge: "br1", but device net-br0 (bridge, br0) is allocated`},
		{"bond", `{"type":"macvlan","linkInContainer":true}`, `plugin macvlan looks for its master in the container (linkInContainer), but device net-bond0`},
		{"sf", `{"type":"sriov"}`, `plugin sriov needs a VF, but device aux-sf4 (sf, mlx5_core.sf.4, enp3s0f0s88) is allocated`},
		{"sf", `{"type":"ovs"}`, `plugin ovs needs a VF, a vDPA device on a VF, or a bridge of Open vSwitch, but device aux-sf4`},
		{"vdpa-sf", `{"type":"ovs"}`, `plugin ovs needs a PCI address, but device vdpa-vdpa6 (vdpa, mlx5_core.sf.2) is allocated`},
		{"sf", `{"type":"host-device"` + capable + `|{"type":"rdma"}`, `plugin rdma needs a PCI function, but device aux-sf4`},
		{"sf", `{"type":"host-device"}`, `plugin host-device finds auxiliary devices only by the capability deviceID, but device aux-sf4`},
		{"vdpa", `{"type":"host-device"}`, `plugin host-device moves only interfaces and PCI functions, but device vdpa-vdpa4 (vdpa, 0000:3b:00.5) is allocated`},
		{"vdpa", `{"type":"sriov"}`, `plugin sriov needs a VF, but device vdpa-vdpa4`},
		{"uplink", `{"type":"host-device"}`, `plugin host-device needs a device that no other pod has, but device pci-0000-02-00-0 (pf, 0000:02:00.0, eth2) is allocated`},
		{"uplink", `{"type":"ib-sriov"}`, `plugin ib-sriov needs a VF, or a PF on vfio-pci that no other pod has, but device`},
		{"bond", `{"type":"bridge"}`, `plugin bridge needs a Linux bridge`},
		{"vf", `{"type":"macvlan"}`, `plugin macvlan needs a master, but device`},
		{"vf", `{"type":"ptp"}`, `device pci-0000-3b-00-2 (vf, 0000:3b:00.2, ens1f0v0) is allocated, but no plugin of the network is known to use it`},
		{"vf", `{"type":"ptp"}|{"type":"devinfo"}`, `device pci-0000-3b-00-2 (vf, 0000:3b:00.2, ens1f0v0) is allocated, but no plugin`},
		{"uplink", `{"type":"new"` + capable, `device pci-0000-02-00-0 (pf, 0000:02:00.0, eth2) is allocated, but no plugin`},
	} {
		_, _, err := bind(t, test.device, nil, strings.Split(test.plugins, "|")...)
		var refusal *cniconfig.Refusal
		if !errors.As(err, &refusal) || !strings.HasPrefix(refusal.Rule, test.rule) || refusal.Remedy == "" {
			t.Errorf("%s in %s:\ngot  %v\nwant %s", test.device, test.plugins, err, test.rule)
		}
	}
}

func TestDeviceKeysOverrideDefaultKeys(t *testing.T) {
	for _, test := range []struct {
		device, plugin, key string // plugin "" = no plugin gets the device
		plugins             string
		added, deviceID     string
		rule                string
	}{
		{"vf", "new", "deviceID", `{"type":"new"}`, "new.deviceID=0000:3b:00.2", "", ""},
		{"vf", "new", "runtimeConfig.deviceID", `{"type":"new"` + capable, "", "0000:3b:00.2", ""},
		{"sf", "new", "deviceID", `{"type":"new"}`, "new.deviceID=mlx5_core.sf.4", "", ""},
		{"bond", "new", "master", `{"type":"new"}`, "new.master=bond0", "", ""},
		{"vf", "", "", `{"type":"ptp"}`, "", "", ""},
		{"sf", "new", "pciBusID", `{"type":"new"}`, "", "", `plugin new: device aux-sf4 (sf, mlx5_core.sf.4, enp3s0f0s88) is allocated, which has no value for pciBusID`},
		{"sf", "sriov", "deviceID", `{"type":"sriov"}`, "", "", `plugin sriov needs a PCI address, but device aux-sf4`},
		{"uplink", "new", "deviceID", `{"type":"new"}`, "", "", `plugin new: deviceID would give it device pci-0000-02-00-0 (pf, 0000:02:00.0, eth2), which other pods share`},
		{"vf", "new", "deviceID", `{"type":"new","deviceID":"x"}`, "", "", `plugin new: the config has deviceID: "x", but device pci-0000-3b-00-2`},
	} {
		keys := cniconfig.DeviceKeys{{Plugin: test.plugin, Key: test.key}}
		if test.plugin == "" {
			keys = cniconfig.DeviceKeys{}
		}
		added, id, err := bind(t, test.device, keys, test.plugins)
		if added != test.added || id != test.deviceID || (err == nil) != (test.rule == "") || err != nil && !strings.HasPrefix(err.Error(), test.rule) {
			t.Errorf("%s %s in %s: added %q, deviceID %q, %v", test.device, keys, test.plugins, added, id, err)
		}
	}
}
