package linkhost

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// devlinkPort is what devlink port -j says of a port.
type devlinkPort struct {
	Netdev     string
	Flavour    string
	Controller *uint32
	PFNumber   *uint16 `json:"pfnum"`
	VFNumber   *uint16 `json:"vfnum"`
	SFNumber   *uint32 `json:"sfnum"`
	External   *bool
}

var flavours = map[string]uint16{
	"physical": nl.DEVLINK_PORT_FLAVOUR_PHYSICAL,
	"cpu":      nl.DEVLINK_PORT_FLAVOUR_CPU,
	"dsa":      nl.DEVLINK_PORT_FLAVOUR_DSA,
	"pcipf":    nl.DEVLINK_PORT_FLAVOUR_PCI_PF,
	"pcivf":    nl.DEVLINK_PORT_FLAVOUR_PCI_VF,
	"virtual":  nl.DEVLINK_PORT_FLAVOUR_VIRTUAL,
	"unused":   nl.DEVLINK_PORT_FLAVOUR_UNUSED,
	"pcisf":    nl.DEVLINK_PORT_FLAVOUR_PCI_SF,
}

// devicePorts are the ports of each device, "pci/0000:03:00.0".
type devicePorts map[string][]*netlink.DevlinkPort

func (d devicePorts) ports(pf string) ([]*netlink.DevlinkPort, error) {
	ports, ok := d["pci/"+pf]
	if !ok {
		return nil, syscall.ENODEV
	}
	return ports, nil
}

// portsByDevice takes the ports by their handles, "pci/0000:03:00.0/65535".
func portsByDevice(ports map[string]devlinkPort) (devicePorts, error) {
	all := make(devicePorts)
	for _, handle := range slices.Sorted(maps.Keys(ports)) {
		slash := strings.LastIndexByte(handle, '/')
		if slash < 0 {
			return nil, fmt.Errorf("port %q is not bus/device/index", handle)
		}
		device := handle[:slash]
		bus, name, _ := strings.Cut(device, "/")
		index, err := strconv.ParseUint(handle[slash+1:], 10, 32)
		if err != nil || name == "" {
			return nil, fmt.Errorf("port %q is not bus/device/index", handle)
		}
		p := ports[handle]
		flavour, ok := flavours[p.Flavour]
		if !ok {
			continue // one that iproute2 has no name for either is no representor
		}
		all[device] = append(all[device], &netlink.DevlinkPort{
			BusName:          bus,
			DeviceName:       name,
			PortIndex:        uint32(index),
			NetdeviceName:    p.Netdev,
			PortFlavour:      flavour,
			PfNumber:         p.PFNumber,
			VfNumber:         p.VFNumber,
			SfNumber:         p.SFNumber,
			ControllerNumber: p.Controller,
			External:         p.External,
		})
	}
	return all, nil
}
