package settings

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/rtnetlink"
)

// Kernel reads and changes the interfaces of this machine. Its methods address an interface by its index, in the current
// network namespace.
type Kernel struct {
	*link.Kernel
	Proc string // the host's /proc, for what processes and other network namespaces have
}

// Settings reads the settings of an interface in the current network namespace. If it does not exist, the error is
// [link.ErrNoInterface].
func (Kernel) Settings(i link.Interface) (s Dump, err error) {
	c := rtnetlink.Dial()
	defer c.Close()
	if s, err = get(c, i.Index); err == nil {
		readPrograms(i.Index, s)
		err = readEthtool(c, i.Index, s)
	}
	return s, failed(i.Name, "read settings", err)
}

// get reads what rtnetlink tells.
func get(c rtnetlink.Conn, index int) (Dump, error) {
	l, err := c.Get(rtnetlink.Local, index, rtnetlink.SkipStats)
	if err != nil {
		return nil, err
	}
	return dump(l)
}

// failed adds the interface and the operation to an error; nil stays nil.
func failed(name, operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("interface %q: %s: %w", name, operation, err)
}

// Set sets one setting of an interface to its value in to. setting is a name that [Dump.Unlike] returns. Use
// [Kernel.SetAltName] for altnames. Set needs CAP_NET_ADMIN.
func (Kernel) Set(i link.Interface, setting string, to Dump) error {
	c := rtnetlink.Dial()
	defer c.Close()
	return failed(i.Name, "set "+setting, set(c, i.Index, setting, to))
}

func set(c rtnetlink.Conn, index int, setting string, to Dump) error {
	_, xdp := xdpModes[setting]
	point, tcx := tcxPoints[setting]
	flag, isFlag := userFlags[setting]
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	switch {
	case (xdp || tcx) && to[setting] != "":
		return errors.New("the program that was attached before cannot be attached again")
	case xdp:
		return detachXDP(c, index, setting)
	case tcx:
		return detach(index, point)
	case ethtoolCommand(setting) != 0:
		return setEthtool(index, ethtoolCommand(setting), to[setting])
	case isFlag:
		if msg.Change = flag; to[setting] != "" {
			msg.Flags = flag
		}
		return c.SetLink(index, msg)
	}
	for kind, of := range settable {
		if of == setting {
			value, err := hex.DecodeString(to[setting])
			if err != nil {
				return err
			}
			return c.SetLink(index, msg, nl.NewRtAttr(int(kind), value))
		}
	}
	return errors.New("devinfo does not know how")
}

// SetAltName adds or removes an altname of an interface in the current network namespace. It needs CAP_NET_ADMIN.
func (Kernel) SetAltName(i link.Interface, altName string, present bool) error {
	set := netlink.LinkDelAltName
	if present {
		set = netlink.LinkAddAltName
	}
	err := set(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: i.Index}}, altName)
	return failed(i.Name, fmt.Sprintf("set altname %q, %v", altName, present), err)
}

// Change contains new values for an interface in the current network namespace. Zero values keep the current ones.
type Change struct {
	Name string // renaming sets the interface down for a moment
	MTU  int    // bytes
	MAC  net.HardwareAddr
}

// Change changes an interface, the name last. It stops at the first error. It needs CAP_NET_ADMIN.
func (Kernel) Change(i link.Interface, to Change) error {
	l, err := netlink.LinkByIndex(i.Index)
	if err != nil {
		return fmt.Errorf("interface %q: %w", i.Name, err)
	}
	set := func(what string, wanted bool, do func() error) {
		if wanted && err == nil {
			err = failed(i.Name, "set "+what, do())
		}
	}
	set("mtu", to.MTU != 0, func() error { return netlink.LinkSetMTU(l, to.MTU) })
	set("address", to.MAC != nil, func() error { return netlink.LinkSetHardwareAddr(l, to.MAC) })
	set("name", to.Name != "", func() error { return rename(l, to.Name) })
	return err
}

// rename sets an interface down, because most kernels cannot rename one that is up, and then up again.
func rename(l netlink.Link, name string) (err error) {
	if l.Attrs().Flags&net.FlagUp != 0 {
		if err := netlink.LinkSetDown(l); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, netlink.LinkSetUp(l)) }()
	}
	return netlink.LinkSetName(l, name)
}
