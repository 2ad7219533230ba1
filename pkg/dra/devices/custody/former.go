package custody

import "devinfo-cni.io/pkg/link"

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

	VF *link.VFSettings `json:"vf,omitempty"` // of a VF; nil = its PF does not tell
}

// IsReplaced says whether what is in the place now is another device than what was noted:
// VFs were made anew, or a card was exchanged.
func (f Former) IsReplaced(now Former) bool {
	return f.Inode != 0 && now.Inode != 0 && f.Inode != now.Inode
}
