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
	"runtime"
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
	if errors.Is(err, syscall.ENODEV) || errors.Is(err, link.ErrNoNetns) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", u, err)
	}
	return nil
}

// peers are the kinds whose IFLA_LINK is the other end of a pair.
var peers = []string{"veth", "netkit", "vxcan"}

// Find returns the interfaces on those of the current network namespace, by the index of the lower interface. It looks
// in all namespaces that [process.Namespaces] finds.
func Find(proc string) (map[int][]Upper, error) {
	seen, err := Look(proc)
	return seen.Uppers, err
}

// Seen is what [Look] finds.
type Seen struct {
	Uppers map[int][]Upper   // see [Find]
	Away   map[string]string // hardware interfaces of other namespaces by device, such as a PCI address: "net1 in /proc/7/ns/net"
}

// Look is like [Find], and also returns the hardware interfaces of the other namespaces.
func Look(proc string) (Seen, error) {
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return Seen{}, err
	}
	defer here.Close()
	paths, err := process.Namespaces(proc)
	if err != nil {
		return Seen{}, err
	}
	seen := Seen{map[int][]Upper{}, map[string]string{}}
	for _, path := range paths {
		err := link.Within(path, func() error { return seen.look(int(here.Fd()), path) })
		if err != nil && !errors.Is(err, link.ErrNoNetns) && !rtnetlink.Absent(err) { // it may just have ended
			return Seen{}, fmt.Errorf("%s: list interfaces: %w", path, err)
		}
	}
	return seen, nil
}

// look adds the interfaces of the current network namespace that are on one of the namespace below, and those of hardware.
func (seen Seen) look(below int, path string) error {
	own, err := link.IsOwnNetns(fmt.Sprintf("/proc/thread-self/fd/%d", below))
	if err != nil {
		return err
	}
	c, err := rtnetlink.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	answers, err := c.Links(rtnetlink.SkipStats)
	if err != nil {
		return err
	}
	nsid, related := rtnetlink.Local, true
	if !own {
		nsid, related = c.NSID(below) // the list has given numbers to the namespaces of lower interfaces
	}
	for _, a := range answers {
		l, err := rtnetlink.ParseLink(a, rtnetlink.Local)
		if err != nil {
			return err
		}
		if !own && l.Kind == "" {
			if device := cmp.Or(l.Parent, c.BusInfo(l.Name)); device != "" {
				seen.Away[device] = l.Name + " in " + path
			}
		}
		if related && (own || nsid >= 0) && l.LowerNSID == nsid && l.Lower > 0 && (!own || l.Lower != l.Index) && !slices.Contains(peers, l.Kind) {
			seen.Uppers[l.Lower] = append(seen.Uppers[l.Lower], Upper{l.Index, l.Name, l.Kind, path})
		}
	}
	return nil
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
	c, err := rtnetlink.Dial()
	if err != nil {
		return r, err
	}
	defer c.Close()
	l, err := c.Get(rtnetlink.Local, index)
	if errors.Is(err, syscall.ENODEV) {
		return r, link.ErrNoInterface
	}
	if err != nil {
		return r, err
	}
	if r.Promiscuity = l.Promiscuity; l.Flags&unix.IFF_PROMISC != 0 {
		r.Promiscuity--
	}
	if l.Type != unix.ARPHRD_ETHER { // macvlan, ipvlan and bridge refuse all others
		return r, nil
	}
	switch err := probe(c, index); {
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.EINVAL):
		r.Handler = true
	case err != nil && !errors.Is(err, syscall.EOPNOTSUPP): // a kernel without macvlan
		return r, fmt.Errorf("test for a receive handler: %w", err)
	}
	return r, nil
}

// probe puts a macvlan on an interface, in a network namespace that ends with the probe, and removes it.
func probe(c rtnetlink.Conn, index int) error {
	tried := make(chan error)
	go func() {
		runtime.LockOSThread()
		here, err := os.Open("/proc/thread-self/ns/net")
		if err == nil {
			defer here.Close()
			if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
				err = putMacvlan(c, index)
			}
			if unix.Setns(int(here.Fd()), unix.CLONE_NEWNET) == nil { // otherwise the thread ends
				runtime.UnlockOSThread()
			}
		}
		tried <- err
	}()
	return <-tried
}

// putMacvlan puts a macvlan into the current network namespace, on an interface of that of the socket, and removes it.
func putMacvlan(c rtnetlink.Conn, index int) error {
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
