package binding

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/inventory"
)

// runtimeDeviceID is the key that libcni sets in place of us.
const runtimeDeviceID = "runtimeConfig.deviceID"

// keys are those that a device may go into.
func keys() []string {
	return []string{"deviceID", "pciBusID", "device", "master", "bridge", runtimeDeviceID}
}

// How says where a device goes: the parameters' key "device".
type How []Place

// A Place is a key of a plugin.
type Place struct {
	Plugin string `json:"plugin"` // its type
	Key    string `json:"key"`    // one of deviceID, pciBusID, device, master, bridge, runtimeConfig.deviceID
}

// Parse reads the parameters' key "device". An empty list puts the device nowhere.
func Parse(raw json.RawMessage) (How, *cniconfig.Refusal) {
	var list []map[string]string
	if err := json.Unmarshal(raw, &list); err != nil || list == nil {
		return nil, refuse(fmt.Sprintf("device: %.80s is not a list of places", raw), "write it as [{plugin: TYPE, key: deviceID}]")
	}
	how := How{}
	for n, fields := range list {
		p := Place{fields["plugin"], fields["key"]}
		switch {
		case len(fields) != 2 || p.Plugin == "" || p.Key == "":
			return nil, refuse(fmt.Sprintf("device[%d]: it must have plugin and key, and nothing else", n), "write it as {plugin: TYPE, key: deviceID}")
		case !slices.Contains(keys(), p.Key):
			return nil, refuse(fmt.Sprintf("device[%d].key: %q is not known", n, p.Key), "use "+strings.Join(keys(), ", "))
		}
		how = append(how, p)
	}
	return how, nil
}

// Check refuses places that a CNI configuration, a list or a single plugin, does not have,
// whatever the device.
func (how How) Check(config json.RawMessage) *cniconfig.Refusal {
	var list struct{ Plugins []map[string]json.RawMessage }
	var single map[string]json.RawMessage
	if json.Unmarshal(config, &list) == nil && list.Plugins != nil {
		return how.in(list.Plugins)
	}
	if json.Unmarshal(config, &single) != nil {
		return refuse("config is no CNI configuration", "give an object")
	}
	return how.in([]map[string]json.RawMessage{single})
}

func (how How) in(confs []map[string]json.RawMessage) *cniconfig.Refusal {
	for _, place := range how {
		found := false
		for _, conf := range confs {
			if typeOf(conf) != place.Plugin {
				continue
			}
			if found = true; place.Key == runtimeDeviceID && !declares(conf) {
				return refuse(fmt.Sprintf("device: plugin %s does not declare the capability deviceID", place.Plugin),
					`give it "capabilities": {"deviceID": true}, or name another key`)
			}
		}
		if !found {
			return refuse(fmt.Sprintf("device: the network has no plugin %q", place.Plugin), "name one of the config's plugins by its type")
		}
	}
	return nil
}

// value is what a key holds for the device; "" = there is nothing.
func (b *binder) value(key string) string {
	d := b.device
	switch key {
	case "deviceID", runtimeDeviceID:
		return d.ID()
	case "pciBusID":
		if d.Aux == "" {
			return d.ID()
		}
	case "bridge":
		if d.Kind == inventory.Bridge || d.Kind == inventory.OVS {
			return d.IfName
		}
	case "device", "master":
		return d.IfName
	}
	return ""
}

// names says that a plugin, whose device goes into key, may be told another one by the
// key other.
func names(plugin, key, other string) bool {
	if plugin != "host-device" || key == other {
		return false
	}
	return slices.Contains([]string{"device", "hwaddr", "kernelpath", "pciBusID"}, other)
}

// plugin is what is known of a type of CNI plugin.
type plugin struct {
	kinds   []inventory.Kind // that it can attach
	bridges []inventory.Kind // whose interface is its bridge
	wants   string           // in words
	into    string           // the key for what is of kinds
	pciOnly bool             // an auxiliary name is nothing to it
	chained bool             // it adds to what another plugin has attached
}

// plugins are the types whose keys are known, from the code of each.
func plugins() map[string]plugin {
	functions := []inventory.Kind{inventory.VF, inventory.PF, inventory.NIC}
	masters := []inventory.Kind{inventory.PF, inventory.NIC, inventory.Bond, inventory.Bridge, inventory.OVS}
	master := plugin{kinds: masters, wants: "wants a master", into: "master"}
	return map[string]plugin{
		"sriov":              {kinds: []inventory.Kind{inventory.VF}, wants: "wants a VF", into: "deviceID", pciOnly: true},
		"ib-sriov":           {kinds: []inventory.Kind{inventory.VF, inventory.PF}, wants: "wants a VF, or a PF on vfio-pci", into: "deviceID", pciOnly: true},
		"accelerated-bridge": {kinds: []inventory.Kind{inventory.VF}, bridges: []inventory.Kind{inventory.Bridge}, wants: "wants a VF or a bridge", into: "deviceID", pciOnly: true},
		"ovs": {
			kinds: []inventory.Kind{inventory.VF, inventory.VDPA}, bridges: []inventory.Kind{inventory.OVS},
			wants: "wants a VF, a vDPA device on one, or a bridge of Open vSwitch", into: "deviceID", pciOnly: true,
		},
		"rdma":        {kinds: functions, wants: "wants a PCI function", into: "deviceID", pciOnly: true, chained: true},
		"host-device": {kinds: append(functions, inventory.SF, inventory.VDPA), wants: "wants a device", into: "pciBusID"},
		"devinfo":     {kinds: append(functions, inventory.SF, inventory.VDPA), into: "deviceID", chained: true},
		"macvlan":     master, "ipvlan": master, "vlan": master, "ipoib": master,
		"bridge": {bridges: []inventory.Kind{inventory.Bridge}, wants: "wants a Linux bridge"},
	}
}

// key gives the key that a device goes into, "" for none; why says that the plugin cannot
// have it.
func (p plugin) key(d inventory.Device, shared, capable bool) (key, why string) {
	switch {
	case slices.Contains(p.bridges, d.Kind):
		return "bridge", ""
	case p.wants == "" && (shared || !slices.Contains(p.kinds, d.Kind)):
		return "", "" // devinfo has nothing to say of a master
	case shared && p.into != "master":
		return "", p.wants + " of the pod's own"
	case !slices.Contains(p.kinds, d.Kind):
		return "", p.wants
	case p.pciOnly && (d.Aux != "" || d.ID() == ""):
		return "", "wants a PCI address"
	case p.into == "pciBusID":
		return hostDevice(d, capable)
	case p.into == "master" && d.IfName == "":
		return "", p.wants
	case p.into == "deviceID" && d.ID() == "":
		return "", ""
	}
	return p.into, ""
}

// hostDevice has a PCI address for functions, an interface for what is no function, and
// for SFs the capability alone.
func hostDevice(d inventory.Device, capable bool) (key, why string) {
	switch {
	case d.Kind == inventory.VDPA && d.IfName == "":
		return "", "moves interfaces and functions"
	case d.Kind == inventory.VDPA || d.ID() == "":
		return "device", ""
	case d.Aux == "":
		return "pciBusID", ""
	case capable:
		return "", "" // it is there
	}
	return "", `knows auxiliary devices by the capability deviceID only`
}

func (p plugin) remedy(name string) string {
	if name == "host-device" {
		return `give the plugin "capabilities": {"deviceID": true}, or select another device`
	}
	return "have the DeviceClass select such a device, or use another plugin"
}
