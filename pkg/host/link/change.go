package link

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// SetAltName adds or removes an altname of an interface in the current network namespace. It needs CAP_NET_ADMIN.
func (k *Kernel) SetAltName(i Interface, altName string, present bool) error {
	set := netlink.LinkDelAltName
	if present {
		set = netlink.LinkAddAltName
	}
	if err := set(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: i.Index}}, altName); err != nil {
		return fmt.Errorf("interface %q: set altname %q, %v: %w", i.Name, altName, present, err)
	}
	return nil
}

// Change contains new values for an interface in the current network namespace. Zero values keep the current ones.
type Change struct {
	Name string // renaming sets the interface down for a moment
	MTU  int    // bytes
	MAC  net.HardwareAddr
}

// Change changes an interface, the name last. It stops at the first error. It needs CAP_NET_ADMIN.
func (k *Kernel) Change(i Interface, to Change) error {
	l, err := netlink.LinkByIndex(i.Index)
	if err != nil {
		return fmt.Errorf("interface %q: %w", i.Name, err)
	}
	set := func(what string, wanted bool, do func() error) {
		if wanted && err == nil {
			if err = do(); err != nil {
				err = fmt.Errorf("interface %q: set %s: %w", i.Name, what, err)
			}
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
