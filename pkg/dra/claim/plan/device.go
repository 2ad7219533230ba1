package plan

import "devinfo-cni.io/pkg/core/state"

// SameDevice reports whether two attachments have the same device and at least one of them has it exclusively.
// It compares the scheduler's allocation and the PCI address of the device-info files. Pods on one macvlan
// master have its PCI address in common but are not the same device.
func SameDevice(a, b *state.Attachment) bool {
	switch {
	case a.Exclusive() && b.Exclusive() && a.Pool == b.Pool && a.Device == b.Device:
		return true
	case a.Info == nil || b.Info == nil || !a.Exclusive() && !b.Exclusive(): // reading the files is slow
		return false
	}
	one := a.PCI()
	return one != "" && one == b.PCI()
}

// Exclude reports whether only one of two attachments may have its device at a time: they have the same device, or two
// ports of one function.
func Exclude(a, b *state.Attachment) bool {
	if a.NodeDevice == nil || b.NodeDevice == nil || a.NodeDevice.Shared() && b.NodeDevice.Shared() {
		return false
	}
	function := a.NodeDevice.Function()
	return a.Device == b.Device || function != "" && function == b.NodeDevice.Function()
}
