package rtnetlink

import (
	"net"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Link is a network interface as the kernel reports it. The comments name the attributes of the fields.
type Link struct {
	NSID  int    // network namespace of the request: see [Local]
	Index int    // unique in its network namespace only
	Flags uint32 // IFF_*
	Type  uint16 // ARPHRD_*

	Name     string           // IFLA_IFNAME
	AltNames []string         // IFLA_PROP_LIST (Linux 5.5)
	Kind     string           // IFLA_INFO_KIND
	MAC      net.HardwareAddr // IFLA_ADDRESS; nil = none
	PermMAC  net.HardwareAddr // IFLA_PERM_ADDRESS (Linux 5.6); nil = none
	MTU      int              // IFLA_MTU
	Bus      string           // IFLA_PARENT_DEV_BUS_NAME (Linux 5.14)
	Parent   string           // IFLA_PARENT_DEV_NAME (Linux 5.14)
	PortName string           // IFLA_PHYS_PORT_NAME

	Promiscuity int // IFLA_PROMISCUITY: how many users, programs and interfaces on it want all frames

	Master    int // IFLA_MASTER: index of the master
	Lower     int // IFLA_LINK: index of the lower interface, or of the peer of a veth
	LowerNSID int // IFLA_LINK_NETNSID; NSID if the attribute is missing

	Attributes []Attribute // all
}

// ParseLink parses an RTM_NEWLINK, the answer to a request in the network namespace nsid.
func ParseLink(answer []byte, nsid int) (Link, error) {
	attrs, err := Attributes(answer, unix.SizeofIfInfomsg)
	if err != nil {
		return Link{}, err
	}
	header := nl.DeserializeIfInfomsg(answer)
	l := Link{NSID: nsid, LowerNSID: nsid, Index: int(header.Index), Flags: header.Flags, Type: header.Type, Attributes: attrs}
	requested := Local
	for _, a := range attrs {
		if a.Kind == unix.IFLA_TARGET_NETNSID {
			requested, err = a.Int()
		} else {
			err = l.take(a)
		}
		if err != nil {
			return Link{}, err
		}
	}
	if requested != nsid {
		// Linux before 4.15 ignores the attribute and returns an interface of the same name in the socket's network
		// namespace.
		return Link{}, syscall.EOPNOTSUPP
	}
	return l, nil
}

func (l *Link) take(a Attribute) (err error) {
	switch a.Kind {
	case unix.IFLA_IFNAME:
		l.Name = a.Text()
	case unix.IFLA_ADDRESS:
		l.MAC = net.HardwareAddr(a.Value)
	case unix.IFLA_PERM_ADDRESS:
		l.PermMAC = net.HardwareAddr(a.Value)
	case unix.IFLA_MTU:
		l.MTU, err = a.Int()
	case unix.IFLA_PARENT_DEV_BUS_NAME:
		l.Bus = a.Text()
	case unix.IFLA_PARENT_DEV_NAME:
		l.Parent = a.Text()
	case unix.IFLA_PHYS_PORT_NAME:
		l.PortName = a.Text()
	case unix.IFLA_PROP_LIST:
		l.AltNames, err = texts(a, unix.IFLA_ALT_IFNAME)
	case unix.IFLA_LINKINFO:
		var kinds []string
		kinds, err = texts(a, nl.IFLA_INFO_KIND)
		l.Kind = strings.Join(kinds, "") // there is one
	case unix.IFLA_PROMISCUITY:
		l.Promiscuity, err = a.Int()
	case unix.IFLA_MASTER:
		l.Master, err = a.Int()
	case unix.IFLA_LINK:
		l.Lower, err = a.Int()
	case unix.IFLA_LINK_NETNSID:
		l.LowerNSID, err = a.Int()
		if l.Lower == 0 {
			l.Lower = l.Index // Linux before 5.11 omits IFLA_LINK if both interfaces have the same index
		}
	}
	return err
}

// texts returns the strings of one kind that are nested in an attribute.
func texts(of Attribute, kind uint16) (list []string, err error) {
	attrs, err := Attributes(of.Value, 0)
	for _, a := range attrs {
		if a.Kind == kind {
			list = append(list, a.Text())
		}
	}
	return list, err
}
