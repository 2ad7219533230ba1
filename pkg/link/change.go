package link

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
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
	Index int
	MAC   net.HardwareAddr // the administrative one; all zero = none
	VLAN  *int
	Trust *bool
}

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
	if to.MAC != nil {
		errs = append(errs, netlink.LinkSetVfHardwareAddr(pf, to.Index, to.MAC))
	}
	if to.VLAN != nil {
		errs = append(errs, netlink.LinkSetVfVlan(pf, to.Index, *to.VLAN))
	}
	if to.Trust != nil {
		errs = append(errs, netlink.LinkSetVfTrust(pf, to.Index, *to.Trust))
	}
	return errors.Join(errs...)
}

// VF returns what the PF with that interface has set for one of its VFs; ok is false if its
// driver does not tell.
func (k *Kernel) VF(pf string, index int) (vf VFRecord, ok bool, err error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE) // netlink.LinkByName does not ask for VFs
	if err != nil {
		return VFRecord{}, false, err
	}
	defer h.Close()
	l, err := patiently(func() (netlink.Link, error) { return h.LinkByName(pf) })
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return VFRecord{}, false, nil
	} else if err != nil {
		return VFRecord{}, false, fmt.Errorf("interface %q: %w", pf, err)
	}
	for _, vf := range vfRecords(l.Attrs()) {
		if vf.Index == index {
			return vf, true, nil
		}
	}
	return VFRecord{}, false, nil
}
