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

var must = difftest.Must

// What the node's default routes keep from being offered, they keep of its capture too.
func TestACapturedHostKeepsItsUplinks(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		up, peer := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0"}, PeerName: "peer"}, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "peer"}}
		must(t, netlink.LinkAdd(up), netlink.LinkSetUp(up), netlink.LinkSetUp(peer))
		must(t, netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, LinkIndex: up.Index}))
		sys, err := sysfs.Open("/sys")
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
		if diff := cmp.Diff([]string{"up0"}, captured.Uplinks); diff != "" {
			t.Error(diff)
		}
	})
}
