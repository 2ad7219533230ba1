package capture_test

import (
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/ctl/capture"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/inventory"
	"devinfo-cni.io/pkg/link/linktest"
	"devinfo-cni.io/pkg/sysfs"
)

// What the node's default routes keep from being offered, they keep of its capture too:
// one of IPv4 with two next hops, one of IPv6, and a bridge's port below one.
func TestACapturedHostKeepsItsUplinks(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		defaultRoutes(t)
		sys, err := sysfs.Open("/sys")
		must(t, err)
		node, err := inventory.Live(sys)
		must(t, err)
		archive, err := capture.Take(capture.Source{Title: "a host", Name: "box", Sys: sys.Files(), Links: capture.Kernel{}, Root: t.TempDir()})
		must(t, err)
		archive.Scrub("box", nil)
		text, err := archive.Text()
		must(t, err)
		file, err := hosttxt.Parse(text)
		must(t, err)
		captured, err := inventory.Captured(file)
		must(t, err)
		if diff := cmp.Diff(uplinks, node.Uplinks); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(node.Uplinks, captured.Uplinks); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(decided(t, node), decided(t, captured)); diff != "" {
			t.Error(diff)
		}
	})
}

// uplinks are those that defaultRoutes makes.
var uplinks = []string{"br0", "hop1", "hop2"}

func defaultRoutes(t *testing.T) {
	t.Helper()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	must(t, netlink.LinkAdd(bridge))
	veth := func(name string, master int) int {
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: master}, PeerName: name + "p"}
		must(t, netlink.LinkAdd(l))
		peer, err := netlink.LinkByName(l.PeerName)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
		must(t, netlink.LinkSetUp(peer))
		return l.Index
	}
	one, other := veth("hop1", 0), veth("hop2", 0)
	veth("port", bridge.Index)
	veth("spare", 0)
	must(t, netlink.LinkSetUp(bridge))
	all4, all6 := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	must(t, netlink.RouteAdd(&netlink.Route{Dst: all4, MultiPath: []*netlink.NexthopInfo{{LinkIndex: one}, {LinkIndex: other}}}))
	must(t, netlink.RouteAdd(&netlink.Route{Dst: all6, LinkIndex: bridge.Index}))
}

// decided is what would become of each device of a host, were all offered.
func decided(t *testing.T, h inventory.Host) map[string]string {
	t.Helper()
	rules, err := inventory.ParseRules([]byte("devices: [{select: 'true', as: shared}]"))
	must(t, err)
	devices, _, err := inventory.Read(h)
	must(t, err)
	why := map[string]string{}
	for _, d := range inventory.Decide(devices, rules, inventory.Situation{Sharing: true}) {
		why[d.Device.Name] = d.Why
	}
	if why["net-br0"] == "" {
		t.Errorf("the bridge of a default route is offered: %q", why)
	}
	return why
}

var must = difftest.Must
