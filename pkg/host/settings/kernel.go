package settings

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

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
		err = readPrograms(i.Index, s)
	}
	if err == nil {
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

// Set sets one setting of an interface to its value in to. setting is a name that [Dump.Unlike] returns, or [Name], [MTU] or
// [MAC]. Set needs CAP_NET_ADMIN.
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
	case setting == AltNames:
		return setAltNames(c, index, strings.Fields(to[setting]))
	case setting == Name:
		return rename(index, to[setting])
	}
	kinds := map[string]uint16{MTU: unix.IFLA_MTU, MAC: unix.IFLA_ADDRESS}
	for kind, name := range settable {
		kinds[name] = kind
	}
	kind, known := kinds[setting]
	value, err := hex.DecodeString(to[setting])
	switch {
	case !known:
		return errors.New("devinfo does not know how")
	case err != nil:
		return err
	}
	return c.SetLink(index, msg, nl.NewRtAttr(int(kind), value))
}

// setAltNames removes unwanted altnames, and then adds missing ones.
func setAltNames(c rtnetlink.Conn, index int, want []string) error {
	now, err := get(c, index)
	if err != nil {
		return err
	}
	has, of := strings.Fields(now[AltNames]), &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
	for _, name := range slices.Concat(has, want) {
		set := netlink.LinkAddAltName
		if !slices.Contains(want, name) {
			set = netlink.LinkDelAltName
		} else if slices.Contains(has, name) {
			continue
		}
		if failed := set(of, name); failed != nil {
			err = errors.Join(err, fmt.Errorf("%q: %w", name, failed))
		}
	}
	return err
}

// rename sets an interface down, because most kernels cannot rename one that is up, and then up again.
func rename(index int, name string) (err error) {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return err
	}
	if l.Attrs().Flags&net.FlagUp != 0 {
		if err := netlink.LinkSetDown(l); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, netlink.LinkSetUp(l)) }()
	}
	return netlink.LinkSetName(l, name)
}
