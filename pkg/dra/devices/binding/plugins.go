package binding

import (
	"slices"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/hostdev"
)

// value is what a key holds for the device; "" = there is nothing.
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
	kinds   []hostdev.Kind // that it can attach
	bridges []hostdev.Kind // whose interface is its bridge
	wants   string         // in words
	into    string         // the key for what is of kinds
	pciOnly bool           // an auxiliary name is nothing to it
	chained bool           // it adds to what another plugin has attached
}

// plugins are the types whose keys are known, from the code of each.
func plugins() map[string]plugin {
	functions := []hostdev.Kind{hostdev.VF, hostdev.PF, hostdev.NIC}
	masters := []hostdev.Kind{hostdev.PF, hostdev.NIC, hostdev.Bond, hostdev.Bridge, hostdev.OVS}
	master := plugin{kinds: masters, wants: "wants a master", into: "master"}
	return map[string]plugin{
		"sriov":              {kinds: []hostdev.Kind{hostdev.VF}, wants: "wants a VF", into: "deviceID", pciOnly: true},
		"ib-sriov":           {kinds: []hostdev.Kind{hostdev.VF, hostdev.PF}, wants: "wants a VF, or a PF on vfio-pci", into: "deviceID", pciOnly: true},
		"accelerated-bridge": {kinds: []hostdev.Kind{hostdev.VF}, bridges: []hostdev.Kind{hostdev.Bridge}, wants: "wants a VF or a bridge", into: "deviceID", pciOnly: true},
		"ovs": {
			kinds: []hostdev.Kind{hostdev.VF, hostdev.VDPA}, bridges: []hostdev.Kind{hostdev.OVS},
			wants: "wants a VF, a vDPA device on one, or a bridge of Open vSwitch", into: "deviceID", pciOnly: true,
		},
		"rdma":        {kinds: functions, wants: "wants a PCI function", into: "deviceID", pciOnly: true, chained: true},
		"host-device": {kinds: append(functions, hostdev.SF, hostdev.VDPA), wants: "wants a device", into: "pciBusID"},
		"devinfo":     {kinds: append(functions, hostdev.SF, hostdev.VDPA), into: "deviceID", chained: true},
		"macvlan":     master, "ipvlan": master, "vlan": master, "ipoib": master,
		"bridge": {bridges: []hostdev.Kind{hostdev.Bridge}, wants: "wants a Linux bridge"},
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
	case d.Kind == hostdev.VDPA && d.IfName == "":
		return "", "moves interfaces and functions"
	case d.Kind == hostdev.VDPA || d.ID() == "":
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
