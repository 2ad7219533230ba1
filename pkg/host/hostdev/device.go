// Package hostdev lists the network devices of a host, running or captured, with their interfaces, RDMA devices
// and representors. [Read] reads all devices. [OverVirtio] and [Ports] apply the same rules to one device.
package hostdev

import "devinfo-cni.io/pkg/host/sysfs"

// Kind is the kind of a device.
type Kind string

// The kinds of devices.
const (
	PF        Kind = "pf"     // a PCI function that can have VFs
	VF        Kind = "vf"     // a PCI function whose PF is on this host
	SF        Kind = "sf"     // a sub-function, on the auxiliary bus
	Auxiliary Kind = "aux"    // an auxiliary device other than an SF
	VDPA      Kind = "vdpa"   // a vDPA device
	NIC       Kind = "nic"    // any other NIC, such as a VF in a VM
	Bond      Kind = "bond"   // a bond
	Bridge    Kind = "bridge" // a Linux bridge
	OVS       Kind = "ovs"    // a bridge, or another internal port, of Open vSwitch
	RDMA      Kind = "rdma"   // an RDMA device in software
)

// Ref is the name of a device, in memory and in records.
type Ref struct {
	Kind   Kind   `json:"kind"`
	PCI    string `json:"pci,omitempty"`    // PCI address of the function; "" = not a PCI function
	Aux    string `json:"aux,omitempty"`    // SF, or the SF below a vDPA device: "mlx5_core.sf.4"
	VDPA   string `json:"vdpa,omitempty"`   // the kernel's name of a vDPA device: "vdpa0"
	IfName string `json:"ifName,omitempty"` // interface in the host's network namespace; "" = none
}

// Place is a bus and a device's name on it. The bus of an interface without a device is "net".
type Place struct{ Bus, Name string }

// Place returns the device's place on its innermost bus.
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
	At       Place           // place on its bus
	Parent   *Device         // a VF's PF, an SF's function, a vDPA device's VF or SF; nil = none
	Function *sysfs.Function // the device's PCI function or the one below it, of any class; nil = none
	Number   *int            // index of a VF, sfnum of an SF; nil = unknown
	Driver   string          // driver of a function or vDPA device ("vhost", "virtio"); "" = unbound
	VFs      int             // number of a PF's VFs
	MaxVFs   int             // largest possible number of VFs
	Path     string          // of a vDPA device: "/dev/vhost-vdpa-0", or the name of its virtio device

	// Only Read sets the following fields.
	Ports       []sysfs.Port // interfaces by port; port 0 is also IfName
	Represents  []string     // representors of functions that are unknown or not on this host
	Representor string       // the device's own representor
	Eswitch     string       // mode of the function's eswitch: "legacy" or "switchdev"; "" = none or unknown
	RDMA        sysfs.RDMA
}
