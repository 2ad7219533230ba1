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
