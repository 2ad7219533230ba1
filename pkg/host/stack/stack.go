// Package stack finds and removes the interfaces that are stacked on another one, such as a macvlan on a VF. They
// receive its frames, and stay on it when it moves to another network namespace: macvlan, ipvlan and vlan ignore the
// event NETDEV_UNREGISTER of a move (drivers/net/macvlan.c, macvlan_device_event; drivers/net/ipvlan/ipvlan_main.c,
// ipvlan_device_event; net/8021q/vlan.c, vlan_device_event). Nothing on the lower interface shows them.
package stack

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/process"
	"devinfo-cni.io/pkg/host/rtnetlink"
)

// Upper is an interface that is stacked on another one.
type Upper struct {
	Index int
	Name  string
	Kind  string // "macvlan"
	Netns string // path of its network namespace, below proc
}

func (u Upper) String() string { return fmt.Sprintf("%s %s in %s", u.Kind, u.Name, u.Netns) }

// Remove deletes the interface.
func (u Upper) Remove() error {
	err := link.Within(u.Netns, func() error {
		return netlink.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: u.Index}})
	})
	if err == nil || errors.Is(err, syscall.ENODEV) || errors.Is(err, link.ErrNoNetns) {
		return nil
	}
	return fmt.Errorf("remove %s: %w", u, err)
}

// peers are the kinds whose IFLA_LINK is the other end of a pair.
var peers = []string{"veth", "netkit", "vxcan"}

// Find returns the interfaces on those of the current network namespace, by the index of the lower interface. It looks
// in all namespaces that [process.Namespaces] finds. away are the hardware interfaces of the other namespaces by device,
// such as a PCI address: "net1 in /proc/7/ns/net".
func Find(proc string) (uppers map[int][]Upper, away map[string]string, err error) {
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, nil, err
	}
	defer here.Close()
	paths, err := process.Namespaces(proc)
	if err != nil {
		return nil, nil, err
	}
	uppers, away = map[int][]Upper{}, map[string]string{}
	for _, path := range paths {
		err := link.Within(path, func() error { return look(int(here.Fd()), path, uppers, away) })
		if err != nil && !errors.Is(err, link.ErrNoNetns) && !rtnetlink.Absent(err) { // it may just have ended
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return uppers, away, nil
}

// look adds the interfaces of the current network namespace that are on one of the namespace below, and those of hardware.
func look(below int, path string, uppers map[int][]Upper, away map[string]string) error {
	own, err := link.IsOwnNetns(fmt.Sprintf("/proc/thread-self/fd/%d", below))
	if err != nil {
		return err
	}
	c := rtnetlink.Dial()
	defer c.Close()
	list, err := c.Links(rtnetlink.SkipStats)
	if err != nil {
		return err
	}
	nsid, related := rtnetlink.Local, true
	if !own {
		if nsid, related, err = c.NSID(below); err != nil { // the list has given numbers to the namespaces of lower interfaces
			return err
		}
	}
	for _, l := range list {
		if device := Device(l, c.BusInfo); !own && device != "" {
			away[device] = l.Name + " in " + path
		}
		if related && l.LowerNSID == nsid && l.Lower > 0 && !slices.Contains(peers, l.Kind) {
			uppers[l.Lower] = append(uppers[l.Lower], Upper{l.Index, l.Name, l.Kind, path})
		}
	}
	return nil
}

// Device returns the device that an interface of hardware belongs to; "" = none, or the interface shows that of another one.
// busInfo is [rtnetlink.Conn.BusInfo]. Newer kernels give a kind to IPoIB's interfaces of hardware too.
func Device(l rtnetlink.Link, busInfo func(rtnetlink.Link) string) string {
	i := link.Interface{Kind: l.Kind, Parent: l.Parent, PortName: l.PortName, Child: link.IPoIBChild(l.Kind, l.Lower != 0)}
	if i.Borrows() {
		return ""
	}
	return cmp.Or(l.Parent, busInfo(l))
}

// Receivers are who receives the frames of an interface in addition to itself.
type Receivers struct {
	Handler     bool // a macvlan, ipvlan, bridge or similar, in any network namespace
	Promiscuity int  // programs, and interfaces on it, that want all frames; the flag promisc of the interface does not count
}

// Receives returns the receivers of an interface of the current network namespace. It also sees what is in a namespace
// that nobody can name, except a vlan.
//
// The kernel allows one receive handler. An interface has a free one if a macvlan in the mode passthru can be put on it
// (drivers/net/macvlan.c, macvlan_common_newlink). The probe is in a network namespace of its own, and removed at once.
func Receives(index int) (r Receivers, err error) {
	c := rtnetlink.Dial()
	defer c.Close()
	l, err := c.Get(rtnetlink.Local, index, rtnetlink.SkipStats)
	if err != nil {
		return r, err
	}
	if r.Promiscuity = l.Promiscuity; l.Flags&unix.IFF_PROMISC != 0 {
		r.Promiscuity--
	}
	if l.Type != unix.ARPHRD_ETHER { // macvlan, ipvlan and bridge refuse all others
		return r, nil
	}
	newNetns := func() error { return unix.Unshare(unix.CLONE_NEWNET) } // it ends with the probe
	switch err := link.Elsewhere(newNetns, func() error { return probe(c, index) }); {
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.EINVAL):
		r.Handler = true
	case err != nil && !errors.Is(err, syscall.EOPNOTSUPP): // a kernel without macvlan
		return r, fmt.Errorf("test for a receive handler: %w", err)
	}
	return r, nil
}

// probe puts a macvlan into the current network namespace, on an interface of that of the socket, and removes it.
func probe(c rtnetlink.Conn, index int) error {
	there, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer there.Close()
	const name, passthru = "probe", 8 // MACVLAN_MODE_PASSTHRU
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("macvlan"))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.IFLA_MACVLAN_MODE, nl.Uint32Attr(passthru))
	err = c.NewLink(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)), nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(index))),
		nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(there.Fd()))), info)
	if err != nil {
		return err
	}
	made, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkDel(made)
}
