package link

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Change contains new values for an interface in the current network namespace. Zero values keep the current ones.
type Change struct {
	Name string // renaming sets the interface down for a moment
	MTU  int    // bytes
	MAC  net.HardwareAddr
}

// Change changes an interface, the name last. It stops at the first error. It needs CAP_NET_ADMIN.
func (k *Kernel) Change(name string, to Change) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %q: %w", name, err)
	}
	steps := []struct {
		what   string
		wanted bool
		do     func() error
	}{
		{"mtu", to.MTU != 0, func() error { return netlink.LinkSetMTU(l, to.MTU) }},
		{"address", to.MAC != nil, func() error { return netlink.LinkSetHardwareAddr(l, to.MAC) }},
		{"name", to.Name != "", func() error { return rename(l, to.Name) }},
	}
	for _, s := range steps {
		if !s.wanted {
			continue
		}
		if err := s.do(); err != nil {
			return fmt.Errorf("interface %q: set %s: %w", name, s.what, err)
		}
	}
	return nil
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

// SetVF sets one setting of a VF to its value in to. setting is a name that [VFSettings.Unlike] returns. pf is the
// interface of the PF. SetVF needs CAP_NET_ADMIN.
func (k *Kernel) SetVF(pf string, n int, setting string, to VFSettings) error {
	l, err := netlink.LinkByName(pf)
	if err != nil {
		return fmt.Errorf("interface %q: %w", pf, err)
	}
	switch setting {
	case VFMAC:
		err = netlink.LinkSetVfHardwareAddr(l, n, octets(to.MAC, 6))
	case VFVLAN:
		err = netlink.LinkSetVfVlanQosProto(l, n, to.VLAN, to.QoS, cmp.Or(to.VLANProto, unix.ETH_P_8021Q))
	case VFTrust:
		err = netlink.LinkSetVfTrust(l, n, to.Trust)
	case VFSpoofCheck:
		err = netlink.LinkSetVfSpoofchk(l, n, to.SpoofCheck)
	case VFLinkState:
		err = netlink.LinkSetVfState(l, n, to.LinkState)
	case VFRate:
		err = netlink.LinkSetVfRate(l, n, int(to.MinRate), int(to.MaxRate))
	case VFGUID:
		err = errors.Join(netlink.LinkSetVfNodeGUID(l, n, octets(to.NodeGUID, 8)), netlink.LinkSetVfPortGUID(l, n, octets(to.PortGUID, 8)))
	}
	if err != nil {
		return fmt.Errorf("interface %q: set %s of VF %d: %w", pf, setting, n, err)
	}
	return nil
}

// octets parses an address. For "" it returns length zero bytes, which remove the address.
func octets(text string, length int) net.HardwareAddr {
	if a, err := net.ParseMAC(text); err == nil {
		return a
	}
	return make(net.HardwareAddr, length)
}

// VF returns the settings of a VF on its PF. pf is the interface of the PF. ok is false if the driver does not
// report them. If the interface does not exist, the error is [ErrNoInterface].
func (k *Kernel) VF(pf string, index int) (vf VFRecord, ok bool, err error) {
	list, err := vfsOf(0, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(pf)))
	if errors.Is(err, syscall.ENODEV) {
		err = ErrNoInterface
	}
	if err != nil {
		return VFRecord{}, false, fmt.Errorf("interface %q: %w", pf, err)
	}
	if at := slices.IndexFunc(list, func(vf VFRecord) bool { return vf.Index == index }); at >= 0 {
		return list[at], true, nil
	}
	return VFRecord{}, false, nil
}
