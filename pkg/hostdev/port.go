package hostdev

import (
	"cmp"
	"errors"
	"slices"

	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

// Interfaces looks up one network interface. [*link.Kernel] implements it.
type Interfaces interface {
	// Interface returns an interface of the network namespace at a path. It fails with
	// link.ErrNoInterface or link.ErrNoNetns if interface or namespace do not exist.
	Interface(netns, name string) (link.Interface, error)
}

// VirtioNIC is the driver of a virtio card. A virtio device below a function with another driver
// is a vDPA device's, on virtio_vdpa.
const VirtioNIC = "virtio-pci"

// OverVirtio returns the place of the device of an interface on a virtio device. It takes the
// first of these that exists:
//
//   - the vDPA device right above the virtio device;
//   - the vDPA device in ethtool's bus_info: some drivers put the virtio device beside it;
//   - the PCI function above. If its driver is not [VirtioNIC] the interface belongs to a vDPA
//     device on the function, which the kernel does not name;
//   - the virtio device itself.
//
// The zero Place means that the virtio device does not exist.
func OverVirtio(sys *sysfs.FS, virtio, busInfo string) (at Place, byEthtool bool, err error) {
	v, ok, err := sys.Virtio(virtio)
	if err != nil || !ok {
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

// Ports lists the interfaces of a device by port, without representors. Only a vDPA device needs
// links. For a PF with many VFs in switchdev mode it takes as long as [sysfs.FS.PortsOf]. IPoIB
// children are in the list, because sysfs does not distinguish them.
func Ports(sys *sysfs.FS, links Interfaces, at Place) ([]sysfs.Port, error) {
	if at.Bus == "vdpa" {
		return portsOfVDPA(sys, links, at.Name)
	}
	ports, err := sys.PortsOf(at.Bus, at.Name)
	ports = slices.DeleteFunc(ports, func(p sysfs.Port) bool { return link.Represents(p.PortName) })
	slices.SortFunc(ports, byPort)
	return ports, err
}

// byPort orders the interfaces of a device. Their DevPort is 0 if the driver does not number ports.
func byPort(a, b sysfs.Port) int { return cmp.Or(a.DevPort-b.DevPort, cmp.Compare(a.Name, b.Name)) }

// portsOfVDPA is [OverVirtio] from the other side.
func portsOfVDPA(sys *sysfs.FS, links Interfaces, name string) (list []sysfs.Port, err error) {
	v, _, err := sys.VDPA(name)
	if err != nil || v.Driver != "virtio" {
		return nil, err
	}
	for _, virtio := range v.Virtio {
		ports, err := sys.PortsOf("virtio", virtio)
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

// borrows reports whether an interface has a device that is not its own: an IPoIB child, or
// software such as a port of a switch.
func borrows(l link.InterfaceRecord) bool {
	return l.Info.Kind != "" && l.Info.Kind != "ipoib" || link.IPoIBChild(l.Info.Kind, l.Link != "")
}

// Switches looks up representors on the switch of a PF, by the PF's PCI address. [*link.Kernel]
// implements it.
type Switches interface {
	Switchdev(pf string) (bool, error)
	Representor(pf string, flavour link.Flavour, number int) (string, bool, error)
}

// Remember returns Switches that read the mode and the devlink ports of each PF only once, for
// callers that look at many devices; of Switches other than package link's it returns s itself.
func Remember(s Switches) Switches {
	if e, ok := s.(interface{ Once() link.Eswitch }); ok {
		return e.Once()
	}
	return s
}
