package listing

import (
	"maps"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/rtnetlink"
	"devinfo-cni.io/test/difftest"
)

// The first default route has two next hops, the second is in a separate table, and the third is an IPv6 route.
func TestUsesListsInterfacesWithRoutesAndAddresses(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		index := map[string]int{}
		for name, address := range map[string]string{
			"up0": "10.0.0.1/24", "up1": "10.1.0.1/24", "up2": "10.2.0.1/24", "up3": "169.254.3.1/16", "up4": "169.254.4.1/16", "up5": "169.254.5.1/16", "nic0": "169.254.1.1/16", "nic1": "169.254.2.1/16", "nic2": "",
		} {
			linktest.AddVeth(t, name, "p"+name, "/proc/self/ns/net")
			if address != "" {
				index[name] = up(t, name, address)
			}
		}
		all4, all6 := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
		for id, name := range map[uint32]string{3: "up4", 4: "up5"} {
			difftest.Must(t, netlink.NexthopAdd(&netlink.Nexthop{ID: id, OIF: uint32(index[name])}))
		}
		group := nl.NewNetlinkRequest(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE|unix.NLM_F_ACK) // of nexthop 4, see struct nexthop_grp
		group.AddData(&nl.Nhmsg{})
		group.AddData(nl.NewRtAttr(unix.NHA_ID, nl.Uint32Attr(5)))
		group.AddData(nl.NewRtAttr(unix.NHA_GROUP, append(nl.Uint32Attr(4), 0, 0, 0, 0)))
		_, err := group.Execute(unix.NETLINK_ROUTE, 0)
		difftest.Must(t, err)
		_ = os.WriteFile("/proc/sys/net/ipv4/nexthop_compat_mode", []byte("0"), 0o600) // since Linux 5.8; /proc may be read-only
		for what, r := range map[string]netlink.Route{
			"two next hops":    {Dst: all4, MultiPath: []*netlink.NexthopInfo{{LinkIndex: index["up0"]}, {LinkIndex: index["up1"]}}},
			"a table":          {Dst: all4, LinkIndex: index["up2"], Table: 1000, Scope: netlink.SCOPE_LINK},
			"IPv6":             {Dst: all6, LinkIndex: index["up3"], Protocol: unix.RTPROT_RA},
			"no default route": {Dst: &net.IPNet{IP: net.IPv4(10, 99, 0, 0), Mask: net.CIDRMask(16, 32)}, LinkIndex: index["nic1"], Scope: netlink.SCOPE_LINK},
			"a nexthop object": {Dst: all4, NHID: 3, Table: 1002},
			"a nexthop group":  {Dst: all4, NHID: 5, Table: 1003},
			"unreachable":      {Dst: all4, Type: unix.RTN_UNREACHABLE, Table: 1001},
		} {
			if err := netlink.RouteAdd(&r); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		lo, err := netlink.LinkByName("lo")
		difftest.Must(t, err, netlink.LinkSetUp(lo)) // gives it 127.0.0.1
		links, err := Interfaces("")
		difftest.Must(t, err)
		uplinks, advertised, others, err := Uses(links)
		difftest.Equal(t, advertised, []string{"up3"})
		want := map[string]string{
			"up0": "has the address 10.0.0.1/24", "up1": "has the address 10.1.0.1/24", "up2": "has the address 10.2.0.1/24", "nic1": "has a route to 10.99.0.0/16",
		}
		if err != nil || !slices.Equal(uplinks, []string{"up0", "up1", "up2", "up3", "up4", "up5"}) || !maps.Equal(others, want) {
			t.Errorf("got %v, %v, %v", uplinks, others, err)
		}
		if uplinks, advertised, others, err := Uses(nil); len(uplinks)+len(advertised)+len(others) > 0 || err != nil {
			t.Errorf("interfaces that came after the list: %v, %v, %v", uplinks, others, err)
		}
	})
}

func TestRouteHasInterfacesOfItsObjectUnlessItNamesThem(t *testing.T) {
	const first, second, group = 4, 5, 9
	objects := []netlink.Nexthop{{ID: first, OIF: 1}, {ID: second, OIF: 3}, {ID: group}}
	half := &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(1, 128)}
	for _, test := range []struct {
		route netlink.Route
		want  []int
	}{
		{netlink.Route{}, nil}, {netlink.Route{NHID: first}, []int{1}}, {netlink.Route{NHID: second}, []int{3}}, {netlink.Route{NHID: group}, []int{1, 3}}, {netlink.Route{LinkIndex: 1, Dst: half}, []int{1}},
		{netlink.Route{NHID: second, LinkIndex: 1}, []int{1}}, {netlink.Route{NHID: group, MultiPath: []*netlink.NexthopInfo{{LinkIndex: 2}}}, []int{2}},
	} {
		difftest.Same(t, test.route.String(), interfacesOf(test.route, objects), test.want)
		difftest.Same(t, test.route.String(), isDefault(test.route), test.route.Dst == nil)
	}
}

// A socket cannot be opened, or an answer is cut off. What the list would lack looks like a device without a user.
func TestFailedReadIsAnError(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		linktest.EachOpenFailure(t, map[string]func() error{
			"interfaces":   func() error { _, err := Interfaces(""); return err },
			"ports":        func() error { _, err := Ports(); return err },
			"eswitches":    func() error { _, err := Eswitches(); return err },
			"vDPA devices": func() error { _, err := VDPAs(); return err },
			"uses":         func() error { _, _, _, err := Uses(nil); return err },
			"routes":       func() error { _, err := routes(); return err },
		})
	})
}

// The parent of a virtio interface is no PCI function.
func TestInterfaceIsListedAsByIproute2(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		difftest.Must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})) // whose bus_info is N/A
		for _, test := range []struct {
			bus     string
			flags   uint32
			address []byte
			want    Interface
		}{
			{"virtio", unix.IFF_UP | unix.IFF_RUNNING, []byte{2, 0, 0, 0, 0, 1}, Interface{BusInfo: "N/A", Flags: []string{"UP"}, Address: "02:00:00:00:00:01"}},
			{"pci", unix.IFF_UP, []byte{192, 0, 2, 1}, Interface{Flags: []string{"NO-CARRIER", "UP"}, Address: "192.0.2.1"}},
			{"pci", unix.IFF_RUNNING, net.ParseIP("2001:db8::1"), Interface{Address: "2001:db8::1"}},
		} {
			test.want.Index, test.want.Name, test.want.Bus, test.want.Parent = 7, "br0", test.bus, "dev0"
			c := rtnetlink.Dial()
			l := rtnetlink.Link{NSID: rtnetlink.Local, LowerNSID: rtnetlink.Local, Index: 7, Name: "br0", Bus: test.bus, Parent: "dev0", Flags: test.flags, MAC: test.address}
			difftest.Equal(t, interfaces(c, []rtnetlink.Link{l}), []Interface{test.want})
			c.Close()
		}
	})
}

func up(t *testing.T, name, address string) (index int) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	difftest.Must(t, err)
	a, err := netlink.ParseAddr(address)
	difftest.Must(t, err, netlink.AddrAdd(l, a))
	return l.Attrs().Index
}
