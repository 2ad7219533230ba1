package link_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/linktest"
)

func TestAnInterfaceThatComesOrGoesIsAnEvent(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		changed, err := link.Events(ctx)
		must(t, err)
		linktest.AddVeth(t, "veth0", "veth1", "/proc/self/ns/net")
		wait(t, changed, true)
		l, err := netlink.LinkByName("veth0")
		must(t, err)
		must(t, netlink.LinkDel(l))
		wait(t, changed, true)
		stop()
		for open := true; open; { // what was under way
			open = wait(t, changed, false)
		}
	})
}

// wait takes the next event; it says whether the channel was open.
func wait(t *testing.T, changed <-chan struct{}, must bool) bool {
	t.Helper()
	select {
	case _, open := <-changed:
		if must && !open {
			t.Fatal("the events have ended")
		}
		return open
	case <-time.After(2 * time.Minute):
		t.Fatal("there is no event")
		return false
	}
}

// One default route has two next hops, another is in a table of its own, one is of IPv6;
// veth8 has a route, but none of these.
func TestUplinksAreTheInterfacesOfDefaultRoutes(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		if got, _, err := (link.Recorder{}).Uses(); len(got) > 0 || err != nil {
			t.Fatalf("without routes: %v, %v", got, err)
		}
		index := map[string]int{}
		for n, name := range []string{"veth0", "veth2", "veth4", "veth6", "veth8"} {
			linktest.AddVeth(t, name, fmt.Sprint("peer", n), "/proc/self/ns/net")
			index[name] = up(t, name, fmt.Sprintf("10.%d.0.1/24", n))
		}
		all4, all6 := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
		for what, r := range map[string]netlink.Route{
			"two next hops":    {Dst: all4, MultiPath: []*netlink.NexthopInfo{{LinkIndex: index["veth0"]}, {LinkIndex: index["veth2"]}}},
			"a table":          {Dst: all4, LinkIndex: index["veth4"], Table: 1000, Scope: netlink.SCOPE_LINK},
			"IPv6":             {Dst: all6, LinkIndex: index["veth6"]},
			"no default route": {Dst: &net.IPNet{IP: net.IPv4(10, 99, 0, 0), Mask: net.CIDRMask(16, 32)}, LinkIndex: index["veth8"], Scope: netlink.SCOPE_LINK},
			"unreachable":      {Dst: all4, Type: unix.RTN_UNREACHABLE, Table: 1001},
		} {
			if err := netlink.RouteAdd(&r); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		got, _, err := link.Recorder{}.Uses()
		if err != nil || !slices.Equal(got, []string{"veth0", "veth2", "veth4", "veth6"}) {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

// What is link-local, or is there because of an address of another interface, is no use.
func TestTheHostUsesWhatHasAnAddressOrARoute(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		for n, address := range []string{"10.1.2.3/24", "169.254.1.1/16", "169.254.1.2/16", ""} {
			name := fmt.Sprint("nic", n)
			linktest.AddVeth(t, name, fmt.Sprint("peer", n), "/proc/self/ns/net")
			if address == "" {
				continue
			}
			index := up(t, name, address)
			if n != 2 {
				continue
			}
			to := &net.IPNet{IP: net.IPv4(10, 99, 0, 0), Mask: net.CIDRMask(16, 32)}
			must(t, netlink.RouteAdd(&netlink.Route{Dst: to, LinkIndex: index, Scope: netlink.SCOPE_LINK}))
		}
		want := map[string]string{"nic0": "has the address 10.1.2.3/24", "nic2": "has a route to 10.99.0.0/16"}
		if _, got, err := (link.Recorder{}).Uses(); err != nil || !maps.Equal(got, want) {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func up(t *testing.T, name, address string) (index int) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	must(t, err)
	a, err := netlink.ParseAddr(address)
	must(t, err)
	must(t, netlink.AddrAdd(l, a))
	must(t, netlink.LinkSetUp(l))
	return l.Attrs().Index
}
