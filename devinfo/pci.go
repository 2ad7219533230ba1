package devinfo

import "encoding/json"

// PCI is the map "pci" (section 3.1.3): a PCI function, mostly an SR-IOV VF.
type PCI struct {
	Address     string // "pci-address": required, "dddd:BB:DD.f", 3.1.3.1
	VhostNet    string // "vhost-net": path of the vhost-net character device, 3.1.3.2
	RDMADevice  string // "rdma-device": name in /sys/class/infiniband, or several joined by commas, 3.1.3.3
	PFAddress   string // "pf-pci-address": the VF's physical function, "dddd:BB:DD.f", 3.1.3.4
	Representor string // "representor-device": name of the VF's representor, since 1.1.0, 3.1.3.5

	Extra map[string]json.RawMessage // keys that the specification does not name

	malformed map[string]json.RawMessage
}

func (p *PCI) table() *table {
	return &table{&p.Extra, &p.malformed, []field{
		{key: "pci-address", section: "3.1.3.1", required: true, value: &p.Address, check: isPCIAddress, pick: freshest},
		{key: "vhost-net", section: "3.1.3.2", value: &p.VhostNet, check: isPath, pick: freshest},
		{key: "rdma-device", section: "3.1.3.3", value: &p.RDMADevice, check: isText, pick: freshest},
		{key: "pf-pci-address", section: "3.1.3.4", value: &p.PFAddress, check: isPCIAddress, pick: freshest},
		{key: "representor-device", section: "3.1.3.5", value: &p.Representor, check: isText, pick: freshest},
	}}
}
