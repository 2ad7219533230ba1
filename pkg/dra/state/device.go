package state

import resourceapi "k8s.io/api/resource/v1"

// NodeDevice is one of the node's own devices, as it was when its claim was prepared: once
// it is in a pod the node tells little of it.
type NodeDevice struct {
	Kind   string `json:"kind"` // see package inventory, as for all of these
	PCI    string `json:"pci,omitempty"`
	Aux    string `json:"aux,omitempty"`
	VDPA   string `json:"vdpa,omitempty"`
	IfName string `json:"ifName,omitempty"`
	// Published is the device as it was offered.
	Published resourceapi.Device `json:"published"`
}

// Shared says whether pods may have the device together.
func (d *NodeDevice) Shared() bool {
	return d.Published.AllowMultipleAllocations != nil && *d.Published.AllowMultipleAllocations
}

// Former is what one of the node's own devices was like before an ADD, and is to be like
// again after the DEL. It holds for the boot in which it was noted.
type Former struct {
	Bus    string `json:"bus"`             // where the device is: "pci", "auxiliary", "vdpa", ...
	Device string `json:"device"`          // its name there
	Inode  uint64 `json:"inode,omitempty"` // of its directory in /sys; 0 = unknown

	Port     int    `json:"port,omitempty"`     // dev_port of its interface
	PortName string `json:"portName,omitempty"` // phys_port_name

	// Of a PCI function:
	Driver   string `json:"driver,omitempty"`   // "" = unbound
	Override string `json:"override,omitempty"` // driver_override

	// Of its interface on the node, if there was one:
	IfName string `json:"ifName,omitempty"`
	MTU    int    `json:"mtu,omitempty"`
	MAC    string `json:"mac,omitempty"` // "" = it has none of six bytes

	VF *FormerVF `json:"vf,omitempty"` // of a VF; nil = its PF does not tell
}

// IsReplaced says whether what is in the place now is another device than what was noted:
// VFs were made anew, or a card was exchanged.
func (f Former) IsReplaced(now Former) bool {
	return f.Inode != 0 && now.Inode != 0 && f.Inode != now.Inode
}

// FormerVF is what a PF had set for a VF.
type FormerVF struct {
	MAC    string   `json:"mac,omitempty"` // the administrative one; "" = none
	VLAN   int      `json:"vlan,omitempty"`
	Trust  bool     `json:"trust,omitempty"`
	Policy VFPolicy `json:"policy"`
}

// VFPolicy is link.VFPolicy.
type VFPolicy struct {
	QoS        int    `json:"qos,omitempty"`
	VLANProto  int    `json:"vlanProto,omitempty"`
	SpoofCheck bool   `json:"spoofCheck,omitempty"`
	LinkState  uint32 `json:"linkState,omitempty"`
	MinRate    uint32 `json:"minRate,omitempty"`
	MaxRate    uint32 `json:"maxRate,omitempty"`
	NodeGUID   string `json:"nodeGUID,omitempty"`
	PortGUID   string `json:"portGUID,omitempty"`
}
