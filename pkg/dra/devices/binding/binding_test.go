package binding_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices/binding"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func on(address string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	return map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{inventory.PCIBusID: {StringValue: &address}}
}

// A device and its sharing mode.
type allocated struct {
	inventory.Device
	as journal.SharingMode
}

func devices() map[string]allocated {
	const own, shared = journal.Exclusive, journal.Shared
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
func bind(t *testing.T, device string, how cniconfig.DeviceKeys, plugins ...string) (added string, deviceID string, refusal *cniconfig.Refusal) {
	t.Helper()
	d, ok := devices()[device]
	if !ok {
		t.Fatalf("no device %s", device)
	}
	list := `{"cniVersion":"1.0.0","name":"net","plugins":[` + strings.Join(plugins, ",") + `]}`
	got, deviceID, refusal := binding.Configure([]byte(list), d.Device, d.as, how)
	if refusal != nil {
		return "", "", refusal
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

// A line has a device, plugins, and maybe the places in them that a DeviceClass names.
func TestDeviceIsWrittenToKeyOfPluginOrRefused(t *testing.T) {
	goldentest.Lines(t, "testdata/bound.txt", func(line string) []string {
		device, plugins, _ := strings.Cut(strings.ReplaceAll(line, "CAPABLE", `"capabilities":{"deviceID":true,"mac":true}`), " ")
		var keys cniconfig.DeviceKeys
		if place, rest, named := strings.Cut(plugins, ": "); named {
			keys, plugins = cniconfig.DeviceKeys{}, rest
			if plugin, key, ok := strings.Cut(strings.TrimPrefix(place, "with "), " "); ok {
				keys = append(keys, cniconfig.Place{Plugin: plugin, Key: key})
			}
		}
		added, id, refusal := bind(t, device, keys, strings.Split(plugins, "|")...)
		if refusal != nil {
			return []string{refusal.Rule, refusal.Remedy}
		}
		return []string{fmt.Sprintf("adds %q, deviceID %q", added, id)}
	})
}
