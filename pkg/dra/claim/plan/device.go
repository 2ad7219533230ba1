package plan

import "devinfo-cni.io/pkg/core/state"

// SameDevice reports whether two attachments have the same device and at least one of them has it exclusively.
// It compares the scheduler's allocation and the PCI address of the device-info files. Pods on one macvlan
// master have its PCI address in common but are not the same device.
func SameDevice(a, b *state.Attachment) bool {
	if a.Exclusive() && b.Exclusive() && a.Pool == b.Pool && a.Device == b.Device {
		return true
	}
	one, other := a.PCI(), b.PCI()
	return one != "" && one == other && (a.Exclusive() || b.Exclusive())
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
