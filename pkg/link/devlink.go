package link

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A Handle is devlink's name of a device: the bus "pci" and the address for a PF. netdevsim also has eswitches.
type Handle struct{ Bus, Device string }

// EswitchMode returns the mode of the device's eswitch, or "" if the kernel does not report it, which needs
// CAP_NET_ADMIN.
func (h Handle) EswitchMode() (string, error) {
	dev, err := retryInterrupted(func() (*netlink.DevlinkDevice, error) { return netlink.DevLinkGetDeviceByName(h.Bus, h.Device) })
	if err != nil {
		return "", err
	}
	return dev.Attrs.Eswitch.Mode, nil
}

// Ports returns the devlink ports of the device, or of all devices if the handle is empty. It sends the handle with
// the request, which the library does not support. Linux before 6.6 ignores the handle and returns all ports.
func (h Handle) Ports() ([]*netlink.DevlinkPort, error) {
	answers, err := retryInterrupted(h.dumpPorts)
	if err != nil {
		return nil, err
	}
	return h.ParsePorts(answers)
}

func (h Handle) dumpPorts() ([][]byte, error) {
	family, err := netlink.GenlFamilyGet(nl.GENL_DEVLINK_NAME)
	if err != nil {
		return nil, err
	}
	req := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_DUMP)
	req.AddData(&nl.Genlmsg{Command: nl.DEVLINK_CMD_PORT_GET, Version: nl.GENL_DEVLINK_VERSION})
	if h.Bus != "" {
		req.AddData(nl.NewRtAttr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated(h.Bus)))
		req.AddData(nl.NewRtAttr(nl.DEVLINK_ATTR_DEV_NAME, nl.ZeroTerminated(h.Device)))
	}
	return req.Execute(unix.NETLINK_GENERIC, 0)
}

// ParsePorts parses the answers to a dump, and drops ports of other devices.
func (h Handle) ParsePorts(answers [][]byte) (ports []*netlink.DevlinkPort, err error) {
	for _, a := range answers {
		port, err := parsePort(a)
		if err != nil {
			return nil, fmt.Errorf("devlink port: %w", err)
		}
		if h.Bus == "" || port.BusName == h.Bus && port.DeviceName == h.Device {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

// parsePort parses the attributes of a DEVLINK_CMD_PORT_NEW that identify representors.
func parsePort(answer []byte) (*netlink.DevlinkPort, error) {
	attrs, err := attributes(answer, nl.SizeofGenlmsg)
	if err != nil {
		return nil, err
	}
	port := new(netlink.DevlinkPort)
	for _, a := range attrs {
		switch a.kind {
		case nl.DEVLINK_ATTR_BUS_NAME:
			port.BusName = a.text()
		case nl.DEVLINK_ATTR_DEV_NAME:
			port.DeviceName = a.text()
		case nl.DEVLINK_ATTR_PORT_INDEX:
			port.PortIndex, err = number[uint32](a)
		case nl.DEVLINK_ATTR_PORT_FLAVOUR:
			port.PortFlavour, err = number[uint16](a)
		case nl.DEVLINK_ATTR_PORT_NETDEV_NAME:
			port.NetdeviceName = a.text()
		case nl.DEVLINK_ATTR_PORT_PCI_PF_NUMBER:
			port.PfNumber, err = pointer(number[uint16](a))
		case nl.DEVLINK_ATTR_PORT_PCI_VF_NUMBER:
			port.VfNumber, err = pointer(number[uint16](a))
		case nl.DEVLINK_ATTR_PORT_PCI_SF_NUMBER:
			port.SfNumber, err = pointer(number[uint32](a))
		case nl.DEVLINK_ATTR_PORT_CONTROLLER_NUMBER:
			port.ControllerNumber, err = pointer(number[uint32](a))
		case nl.DEVLINK_ATTR_PORT_EXTERNAL:
			var flag uint8
			flag, err = number[uint8](a)
			external := flag != 0
			port.External = &external
		}
		if err != nil {
			return nil, err
		}
	}
	return port, nil
}
