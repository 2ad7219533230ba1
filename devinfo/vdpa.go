package devinfo

import "encoding/json"

// VDPA is the map "vdpa" (section 3.1.4): a device on the kernel's vdpa bus.
type VDPA struct {
	ParentDevice string // "parent-device": required, name in /sys/bus/vdpa/devices, 3.1.4.1
	Driver       string // "driver": required, "vhost" or "virtio", 3.1.4.2
	Path         string // "path": required, absolute path of the vhost or virtio device, 3.1.4.3
	Address      string // "pci-address": the PCI function behind it, "dddd:BB:DD.f", 3.1.4.4
	PFAddress    string // "pf-pci-address": that VF's physical function, "dddd:BB:DD.f", 3.1.4.5
	Representor  string // "representor-device": name of that VF's representor, since 1.1.0, 3.1.4.6

	Extra map[string]json.RawMessage // keys that the specification does not name

	malformed map[string]json.RawMessage
}

func (v *VDPA) table() *table {
	return &table{&v.Extra, &v.malformed, []field{
		{key: "parent-device", section: "3.1.4.1", required: true, value: &v.ParentDevice, check: isText, pick: freshest},
		{key: "driver", section: "3.1.4.2", required: true, value: &v.Driver, check: oneOf("vhost", "virtio"), pick: freshest},
		{key: "path", section: "3.1.4.3", required: true, value: &v.Path, check: isAbsolute, pick: freshest},
		{key: "pci-address", section: "3.1.4.4", value: &v.Address, check: isPCIAddress, pick: freshest},
		{key: "pf-pci-address", section: "3.1.4.5", value: &v.PFAddress, check: isPCIAddress, pick: freshest},
		{key: "representor-device", section: "3.1.4.6", value: &v.Representor, check: isText, pick: freshest},
	}}
}
