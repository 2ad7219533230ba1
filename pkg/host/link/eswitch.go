package link

import (
	"bytes"
	"fmt"
	"io/fs"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/host/rtnetlink"
)

// Eswitch reads the eswitches of a running or captured host. Kernel and linkhost.Kernel embed it.
type Eswitch struct {
	Sys fs.FS // the tree below /sys

	// Mode returns devlink's eswitch mode of a PCI device. It returns an error such as ENODEV if devlink does not
	// know the device.
	Mode func(pf string) (string, error)
	// Ports returns the devlink ports of a PCI device, all or none.
	Ports func(pf string) ([]PortRecord, error)
}

// Once returns an Eswitch that reads the mode and the ports of each PF only once, for callers that read many devices.
func (e Eswitch) Once() Eswitch {
	return Eswitch{Sys: e.Sys, Mode: once(e.Mode), Ports: once(e.Ports)}
}

func once[V any](read func(pf string) (V, error)) func(pf string) (V, error) {
	var mu sync.Mutex
	known := map[string]func() (V, error){}
	return func(pf string) (V, error) {
		mu.Lock()
		defer mu.Unlock()
		if known[pf] == nil {
			known[pf] = sync.OnceValues(func() (V, error) { return read(pf) })
		}
		return known[pf]()
	}
}

// Switchdev reports whether the eswitch of the PF at a PCI address is in switchdev mode. It first reads sysfs, which is
// faster than devlink: a PF with few interfaces and no phys_switch_id is in legacy mode, because in switchdev mode each
// port must have one (Documentation/networking/switchdev.rst). Otherwise devlink's mode decides. If devlink returns no
// mode, because the driver or the kernel does not support it or CAP_NET_ADMIN is missing, a phys_switch_id means
// switchdev mode.
func (e Eswitch) Switchdev(pf string) (bool, error) {
	address, err := pci.Parse(pf)
	if err != nil {
		return false, err
	}
	interfaces, id, unread := e.switchID(address.String(), someInterfaces)
	if interfaces > 0 && interfaces < someInterfaces && id == "" && unread == nil {
		return false, nil
	}
	mode, err := e.Mode(address.String())
	if err != nil && !rtnetlink.Absent(err) {
		return false, fmt.Errorf("%s: read the eswitch mode from devlink: %w", pf, err)
	}
	switch mode {
	case "switchdev":
		return true, nil
	case "legacy":
		return false, nil
	}
	if unread != nil {
		return false, fmt.Errorf("%s: read phys_switch_id: %w", pf, unread)
	}
	return id != "", nil
}

// someInterfaces is the number of interfaces that Switchdev reads. In switchdev mode each port has the ID, even with a
// thousand representors; only SFs of ice have interfaces of the PF without it. In legacy mode there are one or two
// interfaces.
const someInterfaces = 4

// switchID returns the number of the PF's interfaces that it has read, at most the given one, and their phys_switch_id
// or "". In legacy mode reading the ID fails with EOPNOTSUPP. Some drivers have an ID in legacy mode too (bnxt_en), so
// prefer devlink's mode.
func (e Eswitch) switchID(pf string, most int) (interfaces int, id string, err error) {
	net := "bus/pci/devices/" + pf + "/net"
	entries, err := fs.ReadDir(e.Sys, net)
	if rtnetlink.Absent(err) {
		return 0, "", nil
	}
	entries = entries[:min(most, len(entries))]
	for n := 0; n < len(entries) && id == "" && err == nil; n++ {
		id, err = e.attribute(net + "/" + entries[n].Name() + "/phys_switch_id")
	}
	return len(entries), id, err
}

// A Handle is devlink's name of a device: the bus "pci" and the address for a PF. netdevsim also has eswitches.
type Handle struct{ Bus, Device string }

// EswitchMode returns the mode of the device's eswitch, or "" if the kernel does not report it, which needs
// CAP_NET_ADMIN.
func (h Handle) EswitchMode() (string, error) {
	dev, err := rtnetlink.Retry(func() (*netlink.DevlinkDevice, error) { return netlink.DevLinkGetDeviceByName(h.Bus, h.Device) })
	if err != nil {
		return "", err
	}
	return dev.Attrs.Eswitch.Mode, nil
}

// Ports returns the devlink ports of the device, or of all devices if the handle is empty. It sends the handle with
// the request, which the library does not support. Linux before 6.6 ignores the handle and returns all ports.
func (h Handle) Ports() ([]PortRecord, error) {
	answers, err := rtnetlink.Retry(h.dumpPorts)
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
func (h Handle) ParsePorts(answers [][]byte) (ports []PortRecord, err error) {
	for _, a := range answers {
		port, err := parsePort(a)
		if err != nil {
			return nil, fmt.Errorf("devlink port: %w", err)
		}
		if h.Bus == "" || port.Bus == h.Bus && port.Device == h.Device {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

type PortRecord struct {
	Bus, Device string `json:"-"` // devlink's name of the device, see [Handle]
	Index       uint32 `json:"-"`

	Netdev     string  `json:"netdev,omitempty"`
	Flavour    string  `json:"flavour"` // "" = unknown, which a representor does not have
	Controller *uint32 `json:"controller,omitempty"`
	PFNumber   *uint16 `json:"pfnum,omitempty"`
	VFNumber   *uint16 `json:"vfnum,omitempty"`
	SFNumber   *uint32 `json:"sfnum,omitempty"`
	External   *bool   `json:"external,omitempty"`
}

// flavours are iproute2's names of devlink's port flavours, DEVLINK_PORT_FLAVOUR_*.
var flavours = []string{"physical", "cpu", "dsa", "pcipf", flavourVF, "virtual", "unused", flavourSF}

const flavourVF, flavourSF = "pcivf", "pcisf"

func parsePort(answer []byte) (port PortRecord, err error) {
	attrs, err := rtnetlink.Attributes(answer, nl.SizeofGenlmsg)
	if err != nil {
		return port, err
	}
	for _, a := range attrs {
		switch a.Kind {
		case nl.DEVLINK_ATTR_BUS_NAME:
			port.Bus = a.Text()
		case nl.DEVLINK_ATTR_DEV_NAME:
			port.Device = a.Text()
		case nl.DEVLINK_ATTR_PORT_INDEX:
			port.Index, err = rtnetlink.Number[uint32](a)
		case nl.DEVLINK_ATTR_PORT_FLAVOUR:
			var n uint16
			if n, err = rtnetlink.Number[uint16](a); int(n) < len(flavours) {
				port.Flavour = flavours[n]
			}
		case nl.DEVLINK_ATTR_PORT_NETDEV_NAME:
			port.Netdev = a.Text()
		case nl.DEVLINK_ATTR_PORT_PCI_PF_NUMBER:
			port.PFNumber, err = present(rtnetlink.Number[uint16](a))
		case nl.DEVLINK_ATTR_PORT_PCI_VF_NUMBER:
			port.VFNumber, err = present(rtnetlink.Number[uint16](a))
		case nl.DEVLINK_ATTR_PORT_PCI_SF_NUMBER:
			port.SFNumber, err = present(rtnetlink.Number[uint32](a))
		case nl.DEVLINK_ATTR_PORT_CONTROLLER_NUMBER:
			port.Controller, err = present(rtnetlink.Number[uint32](a))
		case nl.DEVLINK_ATTR_PORT_EXTERNAL:
			var flag uint8
			flag, err = rtnetlink.Number[uint8](a)
			external := flag != 0
			port.External = &external
		}
		if err != nil {
			return port, err
		}
	}
	return port, nil
}

// present returns a value that the kernel reported. The field of an absent value stays nil.
func present[T any](value T, err error) (*T, error) { return &value, err }

// attribute reads a file of sysfs. It returns "" if the file does not exist or the driver does not support it.
func (e Eswitch) attribute(name string) (string, error) {
	text, err := fs.ReadFile(e.Sys, name)
	if err != nil && !rtnetlink.Absent(err) {
		return "", err
	}
	return string(bytes.TrimSpace(text)), nil
}
