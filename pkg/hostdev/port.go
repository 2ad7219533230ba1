package hostdev

import (
	"cmp"
	"errors"
	"slices"

	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

// Interfaces asks for one interface. [*link.Kernel] is one.
type Interfaces interface {
	// Interface gives an interface of the network namespace at a path;
	// link.ErrNoInterface and link.ErrNoNetns say what is missing.
	Interface(netns, name string) (link.Interface, error)
}

// VirtioNIC is the driver of a virtio card. A virtio device below a function with another driver
// is a vDPA device's, on virtio_vdpa.
const VirtioNIC = "virtio-pci"

// OverVirtio returns the place of the device that an interface on a virtio device is of: the vDPA
// device right above the virtio device, or else the one that ethtool's bus_info names, where
// virtio devices are beside their vDPA devices; or else the PCI function, which may be that of a
// vDPA device that the kernel does not name (see [VirtioNIC]). Without any of them it is the
// virtio device itself. The zero Place is a virtio device that does not exist.
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

// Ports lists the interfaces of a device by port, without representors. links is only asked about
// those of a vDPA device. With many VFs in switchdev mode it takes as long as [sysfs.FS.PortsOf].
func Ports(sys *sysfs.FS, links Interfaces, at Place) ([]sysfs.Port, error) {
	if at.Bus == "vdpa" {
		return portsOfVDPA(sys, links, at.Name)
	}
	ports, err := sys.PortsOf(at.Bus, at.Name)
	ports = slices.DeleteFunc(ports, func(p sysfs.Port) bool { return link.Represents(p.PortName) })
	slices.SortFunc(ports, byPort)
	return ports, err
}

// byPort orders interfaces of a device. Where the driver does not tell its ports apart, all are 0.
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
