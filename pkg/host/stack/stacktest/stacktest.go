// Package stacktest stacks interfaces on others, in all ways that the kernel accepts, and counts the frames that they
// receive.
package stacktest

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
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

// frame is a broadcast that each interface on the link receives, with the tag of the VLAN 7 or none.
func frame(tag []byte) []byte {
	return slices.Concat(bytes.Repeat([]byte{0xff}, 6), []byte{2, 0, 0, 0, 0, 9}, tag, []byte{0x88, 0xb5}, bytes.Repeat([]byte("secret"), 10))
}

// Listen receives the frames of [Send] on an interface in a network namespace. It returns a function that counts them.
func Listen(t testing.TB, netns, name string) (count func() int) {
	t.Helper()
	fd := -1
	difftest.Must(t, linktest.InNetns(netns, func() (err error) {
		l, err := netlink.LinkByName(name)
		difftest.Must(t, err)
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, int(0x0300)) // ETH_P_ALL
		difftest.Must(t, err)
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: l.Attrs().Index})
	}))
	return func() (n int) {
		buffer := make([]byte, 2048)
		for {
			size, err := unix.Read(fd, buffer)
			if err != nil {
				unix.Close(fd)
				return n
			}
			if bytes.Contains(buffer[:size], []byte("secretsecret")) {
				n++
			}
		}
	}
}

// Send sends ten broadcasts from an interface, every second one with the tag of the VLAN 7 if tagged is true.
func Send(t testing.TB, netns, name string, tagged bool) {
	t.Helper()
	difftest.Must(t, linktest.InNetns(netns, func() error {
		l, err := netlink.LinkByName(name)
		difftest.Must(t, err)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		difftest.Must(t, err)
		defer unix.Close(fd)
		for n := range 10 {
			var tag []byte
			if tagged && n%2 == 1 {
				tag = []byte{0x81, 0, 0, 7}
			}
			difftest.Must(t, unix.Sendto(fd, frame(tag), 0, &unix.SockaddrLinklayer{Ifindex: l.Attrs().Index, Halen: 6}))
		}
		return nil
	}))
}
