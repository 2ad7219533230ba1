package link

import (
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A Handle names a device to devlink. That of a PF is "pci" and its address; what
// else has an eswitch is netdevsim.
type Handle struct{ Bus, Device string }

// EswitchMode asks for the mode of the device's eswitch. It is empty where the
// kernel refuses that part: it takes CAP_NET_ADMIN.
func (h Handle) EswitchMode() (string, error) {
	dev, err := netlink.DevLinkGetDeviceByName(h.Bus, h.Device)
	if err != nil {
		return "", err
	}
	return dev.Attrs.Eswitch.Mode, nil
}

// Ports gets the device's devlink ports. Linux 6.6 and later dumps no others;
// earlier ones ignore the two attributes. The library has only a dump without
// them.
func (h Handle) Ports() (ports []*netlink.DevlinkPort, err error) {
	for range 4 { // each port that comes or goes interrupts a dump
		if ports, err = dumpPorts(h.Bus, h.Device); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return ports, err
}

// dumpPorts gets the ports of one device, or with an empty bus those of all.
func dumpPorts(bus, device string) ([]*netlink.DevlinkPort, error) {
	family, err := netlink.GenlFamilyGet(nl.GENL_DEVLINK_NAME)
	if err != nil {
		return nil, err
	}
	req := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_DUMP)
	req.AddData(&nl.Genlmsg{Command: nl.DEVLINK_CMD_PORT_GET, Version: nl.GENL_DEVLINK_VERSION})
	if bus != "" {
		req.AddData(nl.NewRtAttr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated(bus)))
		req.AddData(nl.NewRtAttr(nl.DEVLINK_ATTR_DEV_NAME, nl.ZeroTerminated(device)))
	}
	answers, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	var ports []*netlink.DevlinkPort
	for _, a := range answers {
		port, err := parsePort(a)
		if err != nil {
			return nil, err
		}
		if bus == "" || port.BusName == bus && port.DeviceName == device {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

// parsePort reads of a DEVLINK_CMD_PORT_NEW what sriovnet goes by.
func parsePort(answer []byte) (*netlink.DevlinkPort, error) {
	attrs, err := nl.ParseRouteAttr(answer[nl.SizeofGenlmsg:])
	if err != nil {
		return nil, err
	}
	port := new(netlink.DevlinkPort)
	for _, a := range attrs {
		switch a.Attr.Type & nl.NLA_TYPE_MASK {
		case nl.DEVLINK_ATTR_BUS_NAME:
			port.BusName = nl.BytesToString(a.Value)
		case nl.DEVLINK_ATTR_DEV_NAME:
			port.DeviceName = nl.BytesToString(a.Value)
		case nl.DEVLINK_ATTR_PORT_INDEX:
			err = number(&port.PortIndex, a.Value)
		case nl.DEVLINK_ATTR_PORT_FLAVOUR:
			err = number(&port.PortFlavour, a.Value)
		case nl.DEVLINK_ATTR_PORT_NETDEV_NAME:
			port.NetdeviceName = nl.BytesToString(a.Value)
		case nl.DEVLINK_ATTR_PORT_PCI_PF_NUMBER:
			err = optional(&port.PfNumber, a.Value)
		case nl.DEVLINK_ATTR_PORT_PCI_VF_NUMBER:
			err = optional(&port.VfNumber, a.Value)
		case nl.DEVLINK_ATTR_PORT_PCI_SF_NUMBER:
			err = optional(&port.SfNumber, a.Value)
		case nl.DEVLINK_ATTR_PORT_CONTROLLER_NUMBER:
			err = optional(&port.ControllerNumber, a.Value)
		case nl.DEVLINK_ATTR_PORT_EXTERNAL:
			external := len(a.Value) > 0 && a.Value[0] != 0
			port.External = &external
		}
		if err != nil {
			return nil, err
		}
	}
	return port, nil
}

func optional[T uint16 | uint32](to **T, value []byte) error {
	*to = new(T)
	return number(*to, value)
}

func number[T uint16 | uint32](to *T, value []byte) error {
	if n, err := binary.Decode(value, binary.NativeEndian, to); err != nil || n != len(value) {
		return syscall.EBADMSG
	}
	return nil
}
