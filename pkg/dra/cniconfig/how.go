package cniconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// RuntimeDeviceID is the key that libcni sets, not the driver.
const RuntimeDeviceID = "runtimeConfig.deviceID"

// keys are those that a device may go into.
var keys = []string{"deviceID", "pciBusID", "device", "master", "bridge", RuntimeDeviceID}

// How says where a device goes: the parameters' key "device".
type How []Place

// A Place is a key of a plugin.
type Place struct {
	Plugin string `json:"plugin"` // its type
	Key    string `json:"key"`    // one of keys
}

// ParseHow reads the parameters' key "device". An empty list puts the device nowhere.
func ParseHow(raw json.RawMessage) (How, *Refusal) {
	var list []map[string]string
	if err := json.Unmarshal(raw, &list); err != nil || list == nil {
		return nil, refuse("", fmt.Sprintf("device: %.80s is not a list of places", raw), "write it as [{plugin: TYPE, key: deviceID}]")
	}
	how := How{}
	for n, fields := range list {
		p := Place{fields["plugin"], fields["key"]}
		switch {
		case len(fields) != 2 || p.Plugin == "" || p.Key == "":
			return nil, refuse("", fmt.Sprintf("device[%d]: it must have plugin and key, and nothing else", n), "write it as {plugin: TYPE, key: deviceID}")
		case !slices.Contains(keys, p.Key):
			return nil, refuse("", fmt.Sprintf("device[%d].key: %q is not known", n, p.Key), "use "+strings.Join(keys, ", "))
		}
		how = append(how, p)
	}
	return how, nil
}

// Check refuses places that a CNI configuration, a list or a single plugin, does not have,
// whatever the device.
func (how How) Check(config json.RawMessage) *Refusal {
	type plugin struct {
		Type         string
		Capabilities map[string]bool
	}
	var list struct {
		plugin
		Plugins []plugin
	}
	err := json.Unmarshal(config, &list)
	if wrong := (*json.UnmarshalTypeError)(nil); err != nil && (!errors.As(err, &wrong) || wrong.Field == "") {
		return refuse("", "config is no CNI configuration", "give an object")
	}
	if list.Plugins == nil {
		list.Plugins = []plugin{list.plugin}
	}
	for _, place := range how {
		is := func(p plugin) bool { return p.Type == place.Plugin }
		mute := func(p plugin) bool { return is(p) && !p.Capabilities["deviceID"] }
		switch {
		case !slices.ContainsFunc(list.Plugins, is):
			return refuse("", fmt.Sprintf("device: the network has no plugin %q", place.Plugin), "name one of the config's plugins by its type")
		case place.Key == RuntimeDeviceID && slices.ContainsFunc(list.Plugins, mute):
			return refuse("", fmt.Sprintf("device: plugin %s does not declare the capability deviceID", place.Plugin),
				`give it "capabilities": {"deviceID": true}, or name another key`)
		}
	}
	return nil
}
