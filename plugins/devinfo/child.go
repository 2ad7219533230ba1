package plugin

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/journal"
)

// children makes the configurations that the delegates will be run with: the
// network's name and version, and our deviceID where they have none. pciBusID
// goes with it, as Multus does it.
func children(cfg *config.Config) ([]json.RawMessage, error) {
	var list []json.RawMessage
	for n, d := range cfg.Delegates {
		var own map[string]json.RawMessage
		if err := json.Unmarshal(d.Raw, &own); err != nil {
			return nil, err
		}
		set := func(key, value string) {
			if _, has := own[key]; !has && value != "" {
				own[key], _ = json.Marshal(value) // a string always encodes
			}
		}
		delete(own, "name")
		delete(own, "cniVersion")
		set("name", cfg.Name)
		set("cniVersion", cfg.CNIVersion)
		if own["deviceID"] == nil && own["pciBusID"] == nil { // else the child has a device of its own
			set("deviceID", cfg.DeviceID)
			set("pciBusID", pciBusID(cfg))
		}
		raw, err := json.Marshal(own)
		if err != nil {
			return nil, err
		}
		if _, err := newChild(raw, nil); err != nil {
			return nil, fail(codeConfig, fmt.Errorf("delegates[%d]: %w", n, err), "correct this plugin configuration")
		}
		list = append(list, raw)
	}
	return list, nil
}

// pciBusID is the PCI address that Multus would pass as such: the deviceID if it is a PCI
// address, else "".
func pciBusID(cfg *config.Config) string {
	if cfg.PCIBusID != "" {
		return cfg.PCIBusID
	}
	if _, err := pci.Parse(cfg.DeviceID); err != nil {
		return ""
	}
	return cfg.DeviceID
}

// A child is one delegate, ready to be run.
type child struct {
	types.PluginConf
	raw []byte // its configuration, with what was injected
}

// newChild reads a delegate's configuration, and sets keys of it (SPEC.md section 4,
// "Deriving execution configuration from plugin configuration").
func newChild(raw json.RawMessage, set map[string]json.RawMessage) (*child, error) {
	c := &child{raw: raw}
	if err := json.Unmarshal(raw, &c.PluginConf); err != nil {
		return nil, fmt.Errorf("plugin configuration: %w", err)
	}
	if len(set) == 0 {
		return c, nil
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(raw, &own); err != nil {
		return nil, err
	}
	maps.Copy(own, set)
	var err error
	c.raw, err = json.Marshal(own)
	return c, err
}

// childOf is a delegate of the attachment, with the result of the one before it, which may
// be nil, and of the runtime's capability arguments those that it says it can use.
func childOf(e *journal.Entry, raw, prev json.RawMessage) (*child, error) {
	c, err := newChild(raw, nil)
	if err != nil {
		return nil, err
	}
	set, usable := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if prev != nil {
		set["prevResult"] = prev
	}
	for capability, has := range c.Capabilities {
		if value, given := e.CapabilityArgs[capability]; has && given {
			usable[capability] = value
		}
	}
	if len(usable) > 0 {
		if set["runtimeConfig"], err = json.Marshal(usable); err != nil {
			return nil, err
		}
	}
	return newChild(raw, set)
}
