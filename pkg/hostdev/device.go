// Package hostdev finds the network devices of a host, running or captured: what each is on,
// which interfaces, RDMA devices and representor it has. [Read] reads all of them; [OverVirtio]
// and [Ports] answer for one device by the same rules.
package hostdev

import "devinfo-cni.io/pkg/sysfs"

// Kind is what a device is.
type Kind string

// The kinds of devices.
const (
	PF     Kind = "pf"     // a PCI function that can have VFs
	VF     Kind = "vf"     // a PCI function whose PF is here
	SF     Kind = "sf"     // a sub-function, on the auxiliary bus
	Part   Kind = "aux"    // an auxiliary device that is not an SF, but a part of a function
	VDPA   Kind = "vdpa"   // a vDPA device
	NIC    Kind = "nic"    // any other NIC; in a VM, a VF too
	Bond   Kind = "bond"   // a bond
	Bridge Kind = "bridge" // a Linux bridge
	OVS    Kind = "ovs"    // a bridge, or another internal port, of Open vSwitch
	RDMA   Kind = "rdma"   // an RDMA device in software
)

// Ref names a device, in memory and in records.
type Ref struct {
	Kind   Kind   `json:"kind"`
	PCI    string `json:"pci,omitempty"`    // address of a function; "" = the device is no function
	Aux    string `json:"aux,omitempty"`    // SF, or the SF below a vDPA device: "mlx5_core.sf.4"
	VDPA   string `json:"vdpa,omitempty"`   // the kernel's name of a vDPA device: "vdpa0"
	IfName string `json:"ifName,omitempty"` // interface in the host's network namespace; "" = none
}

// Place is where a device is: a bus, and the name there. An interface without a device has the
// bus "net".
type Place struct{ Bus, Name string }

// Place is the innermost place of the device.
func (r Ref) Place() Place {
	switch {
	case r.VDPA != "":
		return Place{"vdpa", r.VDPA}
	case r.Aux != "":
		return Place{"auxiliary", r.Aux}
	case r.PCI != "":
		return Place{"pci", r.PCI}
	}
	return Place{"net", r.IfName}
}

// Device is a network device of a host.
type Device struct {
	Ref
	At       Place           // on its bus
	Parent   *Device         // the device that it is on: a VF's PF, an SF's function, a vDPA device's VF; nil = none
	Function *sysfs.Function // the PCI function that it is, or is on, of whatever class; nil = none
	Number   *int            // index of a VF, sfnum of an SF; nil = unknown
	Driver   string          // of a function, or of a vDPA device: "vhost", "virtio"; "" = unbound
	VFs      int             // how many a PF has
	MaxVFs   int             // how many it can have
	Path     string          // of a vDPA device: "/dev/vhost-vdpa-0", or the name of its virtio device

	// Only Read fills in these.
	Ports       []sysfs.Port // its interfaces by port; port 0 is also IfName
	Represents  []string     // representors of functions that are not on this host, or not known
	Representor string       // its own representor
	Eswitch     string       // mode of a function's switch: "legacy", "switchdev"; "" = none, or unknown
	RDMA        sysfs.RDMA
}
