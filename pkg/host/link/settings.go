package link

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Settings are the settings of an interface that remain when it moves to another network namespace, without its
// name, MTU and MAC.
type Settings struct {
	AltNames []string `json:"altNames,omitempty"` // sorted; nil before Linux 5.5
	Alias    string   `json:"alias,omitempty"`
	Group    int      `json:"group,omitempty"`
	TxQueue  int      `json:"txQueueLen,omitempty"` // packets

	// Promisc and AllMulti are the flags that a user has set, for example with ip link. The kernel separately counts
	// requests of bridges, macvtaps and packet sockets, and changing these flags does not change this count.
	Promisc  bool `json:"promisc,omitempty"`
	AllMulti bool `json:"allMulti,omitempty"`
}

// The names of these settings.
const (
	AltNames = "altnames"
	Alias    = "alias"
	Group    = "group"
	TxQueue  = "txqueuelen"
	Promisc  = "promisc"
	AllMulti = "allmulti"
)

// Unlike returns the names of the settings that differ.
func (s Settings) Unlike(other Settings) []string {
	return differing(
		difference{AltNames, !slices.Equal(s.AltNames, other.AltNames)},
		difference{Alias, s.Alias != other.Alias},
		difference{Group, s.Group != other.Group},
		difference{TxQueue, s.TxQueue != other.TxQueue},
		difference{Promisc, s.Promisc != other.Promisc},
		difference{AllMulti, s.AllMulti != other.AllMulti})
}

// A difference is the name of a setting, and whether its values differ.
type difference struct {
	name    string
	differs bool
}

func differing(all ...difference) (names []string) {
	for _, d := range all {
		if d.differs {
			names = append(names, d.name)
		}
	}
	return names
}

// Settings reads the settings of an interface in the current network namespace. If it does not exist, the error is
// [ErrNoInterface].
func (k *Kernel) Settings(name string) (s Settings, err error) {
	r, err := dial("")
	if err != nil {
		return s, err
	}
	defer r.close()
	answers, err := r.links(0, 0, rtextFilterSkipStats, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	if errors.Is(err, syscall.ENODEV) {
		err = ErrNoInterface
	}
	if err == nil {
		s, err = settings(answers[0])
	}
	if err != nil {
		return s, fmt.Errorf("interface %q: read settings: %w", name, err)
	}
	return s, nil
}

// settings parses an RTM_NEWLINK. Its flags are the flags that a user has set. /sys/class/net/*/flags also contains
// flags that only the kernel's count has set (net/core/dev.c, netif_get_flags).
func settings(answer []byte) (s Settings, err error) {
	attrs, err := attributes(answer, unix.SizeofIfInfomsg)
	if err != nil {
		return s, err
	}
	flags := nl.DeserializeIfInfomsg(answer).Flags
	s.Promisc, s.AllMulti = flags&unix.IFF_PROMISC != 0, flags&unix.IFF_ALLMULTI != 0
	for _, a := range attrs {
		switch a.kind {
		case unix.IFLA_IFALIAS:
			s.Alias = a.text()
		case unix.IFLA_GROUP:
			s.Group, err = a.integer()
		case unix.IFLA_TXQLEN:
			s.TxQueue, err = a.integer()
		case unix.IFLA_PROP_LIST:
			var list []attribute
			list, err = attributes(a.value, 0)
			for _, p := range list {
				if p.kind == unix.IFLA_ALT_IFNAME {
					s.AltNames = append(s.AltNames, p.text())
				}
			}
		}
		if err != nil {
			return s, err
		}
	}
	slices.Sort(s.AltNames)
	return s, nil
}

// Set sets one setting of an interface to its value in to. setting is a name that [Settings.Unlike] returns. Use
// [Kernel.SetAltName] for altnames. Set needs CAP_NET_ADMIN.
func (k *Kernel) Set(name, setting string, to Settings) error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	flag := func(f uint32, on bool) {
		if msg.Change = f; on {
			msg.Flags = f
		}
	}
	attrs := []*nl.RtAttr{nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name))}
	switch setting {
	case Alias:
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(to.Alias)))
	case Group:
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(uint32(to.Group))))
	case TxQueue:
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_TXQLEN, nl.Uint32Attr(uint32(to.TxQueue))))
	case Promisc:
		flag(unix.IFF_PROMISC, to.Promisc)
	case AllMulti:
		flag(unix.IFF_ALLMULTI, to.AllMulti)
	}
	r, err := dial("")
	if err != nil {
		return err
	}
	defer r.close()
	req := r.request(unix.RTM_SETLINK, msg, attrs...)
	req.Flags |= unix.NLM_F_ACK
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("interface %q: set %s: %w", name, setting, err)
	}
	return nil
}

// SetAltName adds or removes an altname of an interface in the current network namespace. It needs CAP_NET_ADMIN.
func (k *Kernel) SetAltName(name, altName string, present bool) error {
	i, err := k.Interface("", name)
	if err != nil {
		return err
	}
	set := netlink.LinkDelAltName
	if present {
		set = netlink.LinkAddAltName
	}
	if err := set(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: i.Index}}, altName); err != nil {
		return fmt.Errorf("interface %q: set altname %q, %v: %w", name, altName, present, err)
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
func (k *Kernel) Change(name string, to Change) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %q: %w", name, err)
	}
	set := func(what string, wanted bool, do func() error) {
		if wanted && err == nil {
			if err = do(); err != nil {
				err = fmt.Errorf("interface %q: set %s: %w", name, what, err)
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
