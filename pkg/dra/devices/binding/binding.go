// Package binding puts an allocated device into the CNI configuration of its request:
// a configuration and a device in, a configuration or a refusal out.
//
// Which key of a plugin names a device is known for the plugins of [plugins]. For others
// the parameters of the claim's class say it, in an extension of the Device Configuration
// API:
//
//	device:
//	- plugin: example-cni
//	  key: deviceID
//
// There the key alone is chosen; what it holds follows from the device. A configuration
// that names another device by itself is refused.
package binding

import (
	"encoding/json"
	"fmt"
	"strings"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices/inventory"
)

// Bound is a configuration that has its device.
type Bound struct {
	List json.RawMessage // the configuration list, as it is to be run
	// DeviceID is the capability argument deviceID (CNI CONVENTIONS.md); "" = no plugin
	// of the list declares the capability.
	DeviceID string
}

// Bind puts a device, allocated as it is offered, into a configuration list. how says
// where; nil is the usual place of each plugin. An error is a [*cniconfig.Refusal].
func Bind(list json.RawMessage, d inventory.Device, as inventory.As, how cniconfig.How) (Bound, error) {
	var fields map[string]json.RawMessage
	var confs []map[string]json.RawMessage
	err := json.Unmarshal(list, &fields)
	if err == nil {
		err = json.Unmarshal(fields["plugins"], &confs)
	}
	if err != nil {
		return Bound{}, refuse(fmt.Sprintf("config: %v", err), "give a list of plugins")
	}
	b := binder{device: d, shared: as == inventory.Shared}
	if how == nil {
		err = b.usual(confs)
	} else if refusal := how.Check(list); refusal != nil {
		err = refusal
	} else {
		err = b.as(how, confs)
	}
	if err != nil {
		return Bound{}, err
	}
	if fields["plugins"], err = json.Marshal(confs); err == nil {
		list, err = json.Marshal(fields)
	}
	if err != nil {
		return Bound{}, refuse(fmt.Sprintf("config: %v", err), "give a list of plugins")
	}
	return Bound{List: list, DeviceID: b.deviceID}, nil
}

func refuse(rule, remedy string) *cniconfig.Refusal {
	return &cniconfig.Refusal{Rule: rule, Remedy: remedy}
}

// binder is one Bind.
type binder struct {
	device   inventory.Device
	shared   bool
	deviceID string // capability argument
}

// usual puts the device where each plugin looks for it.
func (b *binder) usual(confs []map[string]json.RawMessage) error {
	known := plugins()
	taken := false
	for _, conf := range confs {
		name := typeOf(conf)
		if declares(conf) && b.device.ID() != "" && !b.shared {
			if err := b.put(conf, cniconfig.RuntimeDeviceID); err != nil {
				return err
			}
			taken = true
		}
		p, ok := known[name]
		if !ok {
			continue
		}
		key, why := p.key(b.device, b.shared, declares(conf))
		if why != "" {
			return refuse(fmt.Sprintf("plugin %s %s, and %s is allocated", name, why, b), p.remedy(name))
		}
		if key == "" {
			continue
		}
		if err := b.put(conf, key); err != nil {
			return err
		}
		taken = taken || !p.chained
	}
	if !taken {
		return refuse(fmt.Sprintf("%s is allocated, and no plugin of the network is known to take it", b),
			`have the DeviceClass say device: [{plugin: TYPE, key: KEY}], give a plugin "capabilities": {"deviceID": true}, or say device: [] if the network needs none`)
	}
	return nil
}

// as puts the device where the parameters say.
func (b *binder) as(how cniconfig.How, confs []map[string]json.RawMessage) error {
	for _, place := range how {
		for _, conf := range confs {
			name := typeOf(conf)
			if name != place.Plugin {
				continue
			}
			if p, ok := plugins()[name]; ok && p.pciOnly && b.device.Aux != "" {
				return refuse(fmt.Sprintf("plugin %s wants a PCI address, and %s is allocated", name, b), p.remedy(name))
			}
			if err := b.put(conf, place.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// put sets a key of a plugin, unless it is there with another value.
func (b *binder) put(conf map[string]json.RawMessage, key string) error {
	name, value := typeOf(conf), b.value(key)
	switch {
	case b.shared && key != "master" && key != "bridge":
		return refuse(fmt.Sprintf("plugin %s: %s would take %s, which other pods share", name, key, b), "allocate an exclusive device, or use master or bridge")
	case value == "":
		return refuse(fmt.Sprintf("plugin %s: %s is allocated, which has nothing for %s", name, b, key), "allocate another device, or name another key by device")
	}
	for other, raw := range conf {
		if other != key && (strings.EqualFold(other, key) || names(name, key, other)) && !same(raw, b.value(other)) {
			return b.conflict(name, other, raw)
		}
	}
	if raw, there := conf["linkInContainer"]; there && key == "master" && string(raw) != "false" {
		return refuse(fmt.Sprintf("plugin %s looks for its master in the container (linkInContainer), and %s is allocated", name, b), "leave linkInContainer out")
	}
	if key == cniconfig.RuntimeDeviceID {
		b.deviceID = value
		return b.checkRuntime(name, conf["runtimeConfig"])
	}
	if raw, there := conf[key]; there && string(raw) != `""` && string(raw) != "null" {
		if !same(raw, value) {
			return b.conflict(name, key, raw)
		}
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	conf[key] = text
	return nil
}

// checkRuntime refuses a runtimeConfig in the configuration that names another device.
func (b *binder) checkRuntime(name string, raw json.RawMessage) error {
	var runtime map[string]json.RawMessage
	if raw == nil || json.Unmarshal(raw, &runtime) != nil {
		return nil
	}
	for key, id := range runtime {
		if strings.EqualFold(key, "deviceID") && !same(id, b.deviceID) {
			return b.conflict(name, cniconfig.RuntimeDeviceID, id)
		}
	}
	return nil
}

func (b *binder) conflict(name, key string, raw json.RawMessage) error {
	return refuse(fmt.Sprintf("plugin %s: the config says %s: %s, and %s is allocated", name, key, raw, b), "leave "+key+" out of the config: the driver sets what is needed")
}

// same says whether a value of the configuration is the device's, "" for none; PCI addresses have
// two spellings.
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

// String names the device for people.
func (b *binder) String() string {
	d := b.device
	text := fmt.Sprintf("device %s (%s", d.Name, d.Kind)
	for _, name := range []string{d.ID(), d.IfName} {
		if name != "" {
			text += ", " + name
		}
	}
	return text + ")"
}

func typeOf(conf map[string]json.RawMessage) (name string) {
	_ = json.Unmarshal(conf["type"], &name) // libcni has read it before
	return name
}

// declares says whether a plugin has the capability deviceID.
func declares(conf map[string]json.RawMessage) bool {
	var capabilities map[string]bool
	return json.Unmarshal(conf["capabilities"], &capabilities) == nil && capabilities["deviceID"]
}
