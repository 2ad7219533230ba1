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
	"devinfo-cni.io/pkg/host/rtnetlink"
	"devinfo-cni.io/test/difftest"
)

// Shapes returns all ways known to stack an interface on another one: kinds of links, with numbers of
// their modes or of the attribute that names the lower interface.
func Shapes() (list []Shape) {
	add := func(kind string, attrs ...*nl.RtAttr) { list = append(list, Shape{Kind: kind, attrs: attrs}) }
	for _, kind := range []string{"macvlan", "macvtap"} {
		for mode := uint32(1); mode <= 16; mode *= 2 { // private, vepa, bridge, passthru, source
			add(kind, nl.NewRtAttr(nl.IFLA_MACVLAN_MODE, nl.Uint32Attr(mode)))
		}
	}
	for _, kind := range []string{"ipvlan", "ipvtap"} {
		for mode := range 3 { // L2, L3, L3S
			add(kind, nl.NewRtAttr(nl.IFLA_IPVLAN_MODE, nl.Uint16Attr(uint16(mode))))
		}
	}
	for _, protocol := range []uint16{unix.ETH_P_8021Q, unix.ETH_P_8021AD} {
		add("vlan", nl.NewRtAttr(nl.IFLA_VLAN_ID, nl.Uint16Attr(7)), nl.NewRtAttr(nl.IFLA_VLAN_PROTOCOL, binary.BigEndian.AppendUint16(nil, protocol)))
	}
	for _, kind := range []string{"macsec", "ipoib", "rmnet", "virt_wifi", "lowpan", "dsa", "hsr", "pfcp", "amt", "ovpn"} {
		add(kind)
	}
	for _, kind := range []string{"vxlan", "gre", "gretap", "ipip", "sit", "vti", "ip6gre", "ip6gretap", "ip6tnl", "erspan", "xfrm", "geneve", "bareudp", "gtp"} {
		for attr := 1; attr <= 4; attr++ {
			list = append(list, Shape{Kind: kind, lower: attr})
		}
	}
	for _, kind := range []string{"bridge", "bond", "team", "vrf"} {
		list = append(list, Shape{Kind: kind, Master: true, attrs: []*nl.RtAttr{nl.NewRtAttr(1, nl.Uint32Attr(1))}})
	}
	return list
}

// Shape is one way to stack an interface on another one.
type Shape struct {
	Kind   string
	Master bool // the interface is a port of the new one
	attrs  []*nl.RtAttr
	lower  int // attribute that may be the index of the lower interface; 0 = none
}

// Put stacks an interface "spy" on another one and sets it up. ok is false if the kernel refuses the shape.
func (s Shape) Put(lower netlink.Link) (ok bool) {
	index := nl.Uint32Attr(uint32(lower.Attrs().Index))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(s.Kind))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	for _, a := range s.attrs {
		data.AddChild(a)
	}
	if s.lower != 0 {
		data.AddRtAttr(s.lower, index)
	}
	attrs := []*nl.RtAttr{nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("spy")), info}
	if !s.Master {
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_LINK, index))
	}
	c := rtnetlink.Dial()
	defer c.Close()
	if c.NewLink(attrs...) != nil {
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
