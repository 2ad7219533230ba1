package link

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Change is what to set of an interface in our own network namespace. What is zero stays
// as it is.
type Change struct {
	Name string           // renaming takes an interface down for a moment
	MTU  int              // bytes
	MAC  net.HardwareAddr //
	VF   *VFChange        // of a PF's interface: what it sets for one of its VFs
}

// VFChange is what to set for a VF; nil stays as it is.
type VFChange struct {
	Index      int
	MAC        net.HardwareAddr // the administrative one; all zero = none
	VLAN       *VFVLAN
	Trust      *bool
	SpoofCheck *bool
	LinkState  *uint32
	Rate       *VFRate
	NodeGUID   net.HardwareAddr // of eight bytes
	PortGUID   net.HardwareAddr
}

// VFVLAN is a VLAN that a PF puts a VF into.
type VFVLAN struct {
	ID, QoS int
	Proto   int // EtherType; 0 = 0x8100
}

// VFRate limits a VF, in Mbit/s; 0 = no limit.
type VFRate struct{ Min, Max uint32 }

// Change sets what it is told of an interface, the name last, and stops at the first error.
// It needs CAP_NET_ADMIN.
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
		{"VF", to.VF != nil, func() error { return changeVF(l, *to.VF) }},
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

// rename takes an interface down, since most kernels rename no other, and up again.
func rename(l netlink.Link, name string) (err error) {
	if l.Attrs().Flags&net.FlagUp != 0 {
		if err := netlink.LinkSetDown(l); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, netlink.LinkSetUp(l)) }()
	}
	return netlink.LinkSetName(l, name)
}

func changeVF(pf netlink.Link, to VFChange) error {
	var errs []error
	set := func(wanted bool, do func() error) {
		if wanted {
			errs = append(errs, do())
		}
	}
	n := to.Index
	set(to.MAC != nil, func() error { return netlink.LinkSetVfHardwareAddr(pf, n, to.MAC) })
	set(to.VLAN != nil, func() error {
		return netlink.LinkSetVfVlanQosProto(pf, n, to.VLAN.ID, to.VLAN.QoS, cmp.Or(to.VLAN.Proto, unix.ETH_P_8021Q))
	})
	set(to.Trust != nil, func() error { return netlink.LinkSetVfTrust(pf, n, *to.Trust) })
	set(to.SpoofCheck != nil, func() error { return netlink.LinkSetVfSpoofchk(pf, n, *to.SpoofCheck) })
	set(to.LinkState != nil, func() error { return netlink.LinkSetVfState(pf, n, *to.LinkState) })
	set(to.Rate != nil, func() error { return netlink.LinkSetVfRate(pf, n, int(to.Rate.Min), int(to.Rate.Max)) })
	set(to.NodeGUID != nil, func() error { return netlink.LinkSetVfNodeGUID(pf, n, to.NodeGUID) })
	set(to.PortGUID != nil, func() error { return netlink.LinkSetVfPortGUID(pf, n, to.PortGUID) })
	return errors.Join(errs...)
}

// VF returns what the PF with that interface has set for one of its VFs; ok is false if its
// driver does not tell.
func (k *Kernel) VF(pf string, index int) (vf VFRecord, ok bool, err error) {
	list, err := vfsOf(0, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(pf)))
	if errors.Is(err, syscall.ENODEV) {
		return VFRecord{}, false, nil
	} else if err != nil {
		return VFRecord{}, false, fmt.Errorf("interface %q: %w", pf, err)
	}
	for _, vf := range list {
		if vf.Index == index {
			return vf, true, nil
		}
	}
	return VFRecord{}, false, nil
}
