// Package stacktest stacks interfaces on others, in all ways that the kernel accepts.
package stacktest

import (
	"encoding/binary"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Shapes returns all ways known to stack an interface on another one: kinds of links, with numbers of
// their modes or of the attribute that names the lower interface.
func Shapes() (list []Shape) {
	add := func(kind string, attrs func(lower int) []*nl.RtAttr, master bool) {
		list = append(list, Shape{kind, master, attrs})
	}
	number := func(attr int, n uint32) func(int) []*nl.RtAttr {
		return func(int) []*nl.RtAttr { return []*nl.RtAttr{nl.NewRtAttr(attr, nl.Uint32Attr(n))} }
	}
	for _, kind := range []string{"macvlan", "macvtap"} {
		for mode := uint32(1); mode <= 16; mode *= 2 { // private, vepa, bridge, passthru, source
			add(kind, number(nl.IFLA_MACVLAN_MODE, mode), false)
		}
	}
	for _, kind := range []string{"ipvlan", "ipvtap"} {
		for mode := range 3 { // L2, L3, L3S
			add(kind, func(int) []*nl.RtAttr {
				return []*nl.RtAttr{nl.NewRtAttr(nl.IFLA_IPVLAN_MODE, nl.Uint16Attr(uint16(mode)))}
			}, false)
		}
	}
	for _, protocol := range []uint16{unix.ETH_P_8021Q, unix.ETH_P_8021AD} {
		add("vlan", func(int) []*nl.RtAttr {
			return []*nl.RtAttr{nl.NewRtAttr(nl.IFLA_VLAN_ID, nl.Uint16Attr(7)), nl.NewRtAttr(nl.IFLA_VLAN_PROTOCOL, binary.BigEndian.AppendUint16(nil, protocol))}
		}, false)
	}
	for _, kind := range []string{"macsec", "ipoib", "rmnet", "virt_wifi", "lowpan", "dsa", "hsr", "pfcp", "amt", "ovpn"} {
		add(kind, func(int) []*nl.RtAttr { return nil }, false)
	}
	for _, kind := range []string{"vxlan", "gre", "gretap", "ipip", "sit", "vti", "ip6gre", "ip6gretap", "ip6tnl", "erspan", "xfrm", "geneve", "bareudp", "gtp"} {
		for attr := 1; attr <= 4; attr++ { // one of them is the index of the lower interface
			add(kind, func(lower int) []*nl.RtAttr { return []*nl.RtAttr{nl.NewRtAttr(attr, nl.Uint32Attr(uint32(lower)))} }, false)
		}
	}
	for _, kind := range []string{"bridge", "bond", "team", "vrf"} {
		add(kind, number(1, 1), true)
	}
	return list
}

// Shape is one way to stack an interface on another one.
type Shape struct {
	Kind   string
	Master bool // the interface is a port of the new one
	attrs  func(lower int) []*nl.RtAttr
}

// Put stacks an interface "spy" on another one and sets it up. ok is false if the kernel refuses the shape.
func (s Shape) Put(lower netlink.Link) (ok bool) {
	request := func(command, flags int, msg *nl.IfInfomsg, attrs ...*nl.RtAttr) bool {
		req := nl.NewNetlinkRequest(command, flags|unix.NLM_F_ACK)
		req.AddData(msg)
		for _, a := range attrs {
			req.AddData(a)
		}
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		return err == nil
	}
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(s.Kind))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	for _, a := range s.attrs(lower.Attrs().Index) {
		data.AddChild(a)
	}
	attrs := []*nl.RtAttr{nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("spy")), info}
	if !s.Master {
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(lower.Attrs().Index))))
	}
	if !request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, nl.NewIfInfomsg(unix.AF_UNSPEC), attrs...) {
		return false
	}
	spy, err := netlink.LinkByName("spy")
	if err != nil || s.Master && netlink.LinkSetMasterByIndex(lower, spy.Attrs().Index) != nil {
		return false
	}
	_ = netlink.LinkSetUp(spy)
	return true
}
