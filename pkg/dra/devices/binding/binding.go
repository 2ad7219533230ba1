// Package binding writes an allocated device into the CNI configuration of its request.
//
// It knows the keys of the plugins in [types]. For other plugins the class of the claim names the key, in an
// extension of the Device Configuration API:
//
//	device:
//	- plugin: example-cni
//	  key: deviceID
//
// The value of the key follows from the device. A configuration that already has a different device is refused.
package binding

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/hostdev"
)

// plugin is a plugin of a configuration list.
type plugin struct {
	conf         map[string]json.RawMessage
	Type         string
	Capabilities map[string]bool
}

// Configure writes a device into a configuration list. as is the way in which the device is offered. keys are the keys that
// get the device; nil selects the default key of each plugin. The result deviceID is the capability argument (CNI
// CONVENTIONS.md), or "" if no plugin in the list declares the capability.
func Configure(list json.RawMessage, d inventory.Device, as journal.SharingMode, keys cniconfig.DeviceKeys) (configured json.RawMessage, deviceID string, err *cniconfig.Refusal) {
	var confs []map[string]json.RawMessage
	var plugins []plugin
	fields := config.Object(list) // cniconfig has checked the list
	_ = json.Unmarshal(fields["plugins"], &confs)
	_ = json.Unmarshal(fields["plugins"], &plugins)
	b := binder{device: d, shared: as == journal.Shared}
	taken := keys != nil
	for n, p := range plugins {
		if p.conf = confs[n]; keys != nil {
			err = b.named(p, keys)
		} else {
			err = b.usual(p, &taken)
		}
		if err != nil {
			return nil, "", err
		}
	}
	if !taken {
		return nil, "", refuse(fmt.Sprintf("%s is allocated, but no plugin of the network is known to use it", &b),
			`set device: [{plugin: TYPE, key: KEY}] in the DeviceClass, or give a plugin "capabilities": {"deviceID": true}; if the network needs no device, set device: []`)
	}
	fields["plugins"] = config.Encode(confs)
	return config.Encode(fields), b.deviceID, nil
}

func refuse(rule, remedy string) *cniconfig.Refusal {
	return &cniconfig.Refusal{Rule: rule, Remedy: remedy}
}

type binder struct {
	device   inventory.Device
	shared   bool
	deviceID string // capability argument
}

// usual writes the device to the default key of a plugin. It sets taken if the plugin attaches the device.
func (b *binder) usual(p plugin, taken *bool) *cniconfig.Refusal {
	capable := p.Capabilities["deviceID"]
	if capable && b.device.ID() != "" && !b.shared {
		b.deviceID, *taken = b.device.ID(), true
	}
	t := types()[p.Type]
	key, why := t.key(b.device, b.shared, capable)
	switch {
	case why != "":
		return refuse(fmt.Sprintf("plugin %s %s, but %s is allocated", p.Type, why, b), remedy(p.Type))
	case key == "":
		return nil
	}
	*taken = *taken || !t.chained
	return b.put(p, key)
}

// named writes the device to the keys of a plugin that the class names.
func (b *binder) named(p plugin, keys cniconfig.DeviceKeys) *cniconfig.Refusal {
	for _, place := range keys {
		switch {
		case place.Plugin != p.Type:
			continue
		case types()[p.Type].pciOnly && b.device.Aux != "":
			return refuse(fmt.Sprintf("plugin %s needs a PCI address, but %s is allocated", p.Type, b), remedy(p.Type))
		}
		if err := b.put(p, place.Key); err != nil {
			return err
		}
	}
	return nil
}

// put sets a key of a plugin. It refuses a different existing value.
func (b *binder) put(p plugin, key string) *cniconfig.Refusal {
	name, conf, value := p.Type, p.conf, b.value(key)
	switch {
	case b.shared && key != "master" && key != "bridge":
		return refuse(fmt.Sprintf("plugin %s: %s would give it %s, which other pods share", name, key, b), "allocate an exclusive device, or use the key master or bridge")
	case value == "":
		return refuse(fmt.Sprintf("plugin %s: %s is allocated, which has no value for %s", name, b, key), "allocate a different device, or set device to a different key")
	}
	for other, raw := range conf {
		alike := strings.EqualFold(other, key) || name == "host-device" && slices.Contains([]string{"device", "hwaddr", "kernelpath", "pciBusID"}, other)
		if other != key && alike && !same(raw, b.value(other)) {
			return b.conflict(name, other, raw)
		}
	}
	if raw, there := conf["linkInContainer"]; there && key == "master" && string(raw) != "false" {
		return refuse(fmt.Sprintf("plugin %s looks for its master in the container (linkInContainer), but %s is allocated", name, b), "remove linkInContainer")
	}
	if key == cniconfig.RuntimeDeviceID {
		b.deviceID = value
		return nil
	}
	switch raw, there := conf[key]; {
	case !there || string(raw) == `""` || string(raw) == "null":
		conf[key] = config.Encode(value)
	case !same(raw, value):
		return b.conflict(name, key, raw)
	}
	return nil
}

func (b *binder) conflict(name, key string, raw json.RawMessage) *cniconfig.Refusal {
	return refuse(fmt.Sprintf("plugin %s: the config has %s: %s, but %s is allocated", name, key, raw, b), "remove "+key+" from the config, because the driver sets it")
}

// same reports whether a value of the configuration equals that of the device. It accepts each spelling of a PCI
// address.
func same(raw json.RawMessage, value string) bool {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return false
	}
	if a, err := pci.Parse(text); err == nil {
		text = a.String()
	}
	return text == value && value != ""
}

func (b *binder) String() string {
	d := b.device
	known := slices.DeleteFunc([]string{string(d.Kind), d.ID(), d.IfName}, func(s string) bool { return s == "" })
	return fmt.Sprintf("device %s (%s)", d.Name, strings.Join(known, ", "))
}

// value returns the value of a key for the device, or "" if the device has none.
func (b *binder) value(key string) string {
	d := b.device
	switch key {
	case "deviceID", cniconfig.RuntimeDeviceID:
		return d.ID()
	case "pciBusID":
		if d.Aux == "" {
			return d.ID()
		}
	case "bridge":
		if d.Kind == hostdev.Bridge || d.Kind == hostdev.OVS {
			return d.IfName
		}
	case "device", "master":
		return d.IfName
	}
	return ""
}

type pluginType struct {
	keys    map[hostdev.Kind]string // keys for the kinds of devices that the plugin can use
	wants   string                  // the required device, for errors; "" = the plugin ignores other devices
	pciOnly bool                    // the plugin does not support auxiliary device names
	chained bool                    // the plugin extends the attachment of another plugin
}

// types returns the plugin types with known keys. The table follows the code of each plugin.
func types() map[string]pluginType {
	type keys = map[hostdev.Kind]string
	const vf, pf, nic, sf, vdpa, bridge, ovs = hostdev.VF, hostdev.PF, hostdev.NIC, hostdev.SF, hostdev.VDPA, hostdev.Bridge, hostdev.OVS
	master := pluginType{keys: keys{pf: "master", nic: "master", hostdev.Bond: "master", bridge: "master", ovs: "master"}, wants: "needs a master"}
	return map[string]pluginType{
		"sriov":              {keys: keys{vf: "deviceID"}, wants: "needs a VF", pciOnly: true},
		"ib-sriov":           {keys: keys{vf: "deviceID", pf: "deviceID"}, wants: "needs a VF, or a PF on vfio-pci", pciOnly: true},
		"accelerated-bridge": {keys: keys{vf: "deviceID", bridge: "bridge"}, wants: "needs a VF or a bridge", pciOnly: true},
		"ovs":                {keys: keys{vf: "deviceID", vdpa: "deviceID", ovs: "bridge"}, wants: "needs a VF, a vDPA device on a VF, or a bridge of Open vSwitch", pciOnly: true},
		"rdma":               {keys: keys{vf: "deviceID", pf: "deviceID", nic: "deviceID"}, wants: "needs a PCI function", pciOnly: true, chained: true},
		"host-device":        {keys: keys{vf: "pciBusID", pf: "pciBusID", nic: "pciBusID", sf: cniconfig.RuntimeDeviceID, vdpa: "device"}, wants: "needs a device"},
		"devinfo":            {keys: keys{vf: "deviceID", pf: "deviceID", nic: "deviceID", sf: "deviceID", vdpa: "deviceID"}, chained: true},
		"bridge":             {keys: keys{bridge: "bridge"}, wants: "needs a Linux bridge"},
		"macvlan":            master,
		"ipvlan":             master,
		"vlan":               master,
		"ipoib":              master,
	}
}

// key returns the key for a device, or "" if the plugin ignores it. why is the reason if the plugin cannot use the
// device; "" = it can.
func (p pluginType) key(d inventory.Device, shared, capable bool) (key, why string) {
	key, known := p.keys[d.Kind]
	switch {
	case p.wants == "" && (shared || !known || d.ID() == ""):
		return "", ""
	case key == "bridge":
		return key, ""
	case shared && key != "master":
		return "", p.wants + " that no other pod has"
	case !known || key == "master" && d.IfName == "":
		return "", p.wants
	case p.pciOnly && (d.Aux != "" || d.ID() == ""):
		return "", "needs a PCI address"
	case key == "device" && d.IfName == "":
		return "", "moves only interfaces and PCI functions"
	case key == "pciBusID" && d.ID() == "":
		return "device", ""
	case key == cniconfig.RuntimeDeviceID && !capable:
		return "", "finds auxiliary devices only by the capability deviceID"
	}
	return key, ""
}

func remedy(plugin string) string {
	if plugin == "host-device" {
		return `give the plugin "capabilities": {"deviceID": true}, or select a different device`
	}
	return "select such a device in the DeviceClass, or use a different plugin"
}
