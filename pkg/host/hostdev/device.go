// Package hostdev lists the network devices of a host, running or captured, with their interfaces, RDMA devices
// and representors. [Read] reads all devices. [OverVirtio] and [Ports] apply the same rules to one device.
package hostdev

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/listing"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Kind is the kind of a device.
type Kind string

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
	PortOf string `json:"portOf,omitempty"` // PCI address of the function of which this is a further port; "" = it is the first, or not on PCI
	Aux    string `json:"aux,omitempty"`    // SF, or the SF below a vDPA device: "mlx5_core.sf.4"
	VDPA   string `json:"vdpa,omitempty"`   // the kernel's name of a vDPA device: "vdpa0"
	IfName string `json:"ifName,omitempty"` // interface in the host's network namespace; "" = none
}

// Function returns the PCI address of the function that the device is or is a port of, or "".
func (r Ref) Function() string { return cmp.Or(r.PCI, r.PortOf) }

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

	Ports       []sysfs.Port // interfaces by port; port 0 is also IfName
	Represents  []string     // representors of functions that are unknown or not on this host
	Representor string       // the device's own representor
	Eswitch     string       // mode of the function's eswitch: "legacy" or "switchdev"; "" = none or unknown
	RDMA        sysfs.RDMA

	RDMAOn  string  // PCI address of the function that has the RDMA devices, if it is another one: see [sysfs.FS.RDMAApart]; "" = this device
	BoundTo string  // the interface of another device, in any network namespace, that the device's own RDMA devices serve; "" = none
	Serves  *Device // the device of that interface; nil = none, or the interface is in another network namespace

	Unread error // why facts that the device may have are missing; nil = none is
}

// LacksInterface reports whether the device should have an interface but has none in the host's network namespace.
// Functions for VMs and DPDK, and vDPA devices, need none.
func (d *Device) LacksInterface() bool {
	forOthers := slices.ContainsFunc([]string{"vfio", "uio", "pci-stub", "pciback"}, func(part string) bool { return strings.Contains(d.Driver, part) })
	kind := d.Kind == SF && d.Number != nil || d.PCI != ""
	return kind && len(d.Ports) == 0 && !forOthers
}

// OnlyRDMA reports whether the device has RDMA devices here, and no interface in any network namespace.
func (d *Device) OnlyRDMA() bool { return len(d.RDMA.Devices) > 0 && !d.RDMA.Netdev }

// Interfaces looks up one network interface. [*link.Kernel] implements it.
type Interfaces interface {
	// Interface returns an interface of the network namespace at path netns. It returns link.ErrNoInterface or
	// link.ErrNoNetns if one of them does not exist.
	Interface(netns, name string) (link.Interface, error)
}

// VirtioNIC is the driver of a virtio network card. A virtio device below a function with another driver
// belongs to a vDPA device on virtio_vdpa.
const VirtioNIC = "virtio-pci"

// OverVirtio returns the place of the device behind a virtio device: the vDPA device directly above, else the vDPA
// device in ethtool's bus_info (for drivers that do not put the virtio device below it), else the PCI function above,
// else the virtio device itself. If the driver of the function is not [VirtioNIC], the interface belongs to a vDPA
// device on the function, and the kernel does not report which one. The zero Place means that the virtio device does
// not exist.
func OverVirtio(sys *sysfs.FS, virtio, busInfo string) (at Place, byEthtool bool, err error) {
	v, ok, err := sys.Virtio(virtio)
	if !ok {
		return Place{}, false, err
	}
	if v.VDPA != "" {
		return Place{"vdpa", v.VDPA}, false, nil
	}
	if _, ok, err := sys.VDPA(busInfo); err != nil || ok {
		return Place{"vdpa", busInfo}, true, err
	}
	if v.PCI != nil {
		return Place{"pci", v.PCI.String()}, false, nil
	}
	return Place{"virtio", virtio}, false, nil
}

// Ports returns the interfaces of a device, sorted by port, without representors. links is used only for vDPA devices.
// The cost for a PF in switchdev mode grows with its VFs, see [sysfs.FS.Ports]. IPoIB children are included.
func Ports(sys *sysfs.FS, links Interfaces, at Place) ([]sysfs.Port, error) {
	if at.Bus == "vdpa" {
		return portsOfVDPA(sys, links, at.Name)
	}
	ports, err := sys.Ports(at.Bus, at.Name, sysfs.AllPorts)
	ports = slices.DeleteFunc(ports, func(p sysfs.Port) bool { return link.Represents(p.PortName) })
	slices.SortFunc(ports, byPort)
	return ports, err
}

// byPort compares the interfaces of a device by port, and then by name because DevPort is 0 if the driver does not
// number its ports.
func byPort(a, b sysfs.Port) int { return cmp.Or(a.DevPort-b.DevPort, cmp.Compare(a.Name, b.Name)) }

// portsOfVDPA returns the interfaces for which [OverVirtio] finds the vDPA device.
func portsOfVDPA(sys *sysfs.FS, links Interfaces, name string) (list []sysfs.Port, err error) {
	v, _, err := sys.VDPA(name)
	if err != nil || v.Driver != "virtio" {
		return nil, err
	}
	for _, virtio := range v.Virtio {
		ports, err := sys.Ports("virtio", virtio, sysfs.AllPorts)
		if err != nil {
			return nil, err
		}
		for _, p := range ports {
			i, err := links.Interface("", p.Name)
			if err != nil && !errors.Is(err, link.ErrNoInterface) {
				return nil, err
			}
			if err == nil && (len(v.Virtio) == 1 || i.BusInfo == name) {
				list = append(list, p)
			}
		}
	}
	return list, nil
}

// borrows reports whether an interface shows the device of another interface: an IPoIB child, or software such
// as a port of a switch.
func borrows(l listing.Interface) bool {
	return l.Info.Kind != "" && l.Info.Kind != "ipoib" || link.IPoIBChild(l.Info.Kind, l.Link != "")
}

// Eswitches looks up representors on the eswitch of a PF, by the PF's PCI address. [*link.Kernel] implements it.
type Eswitches interface {
	Switchdev(pf string) (bool, error)
	Representor(pf string, flavour link.Flavour, number int) (name, source string, err error)
}

// CacheEswitches returns an Eswitches that reads the mode and the devlink ports of each PF only once, for
// callers that look at many devices. It returns s itself if package link does not implement s.
func CacheEswitches(s Eswitches) Eswitches {
	if e, ok := s.(interface{ Once() link.Eswitch }); ok {
		return e.Once()
	}
	return s
}
