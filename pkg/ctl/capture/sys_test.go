package capture_test

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/capturefile"
	"devinfo-cni.io/pkg/capturefile/capturetest"
	"devinfo-cni.io/pkg/ctl/capture"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/link/linktest"
	"devinfo-cni.io/pkg/sysfs"
)

func TestCaptureOfCapturedHostIsIdentical(t *testing.T) {
	for _, name := range capturetest.Names(t) {
		ar, err := txtar.ParseFile("../../../testdata/hosts/" + name + ".txtar")
		must(t, err)
		got, denied, err := capture.Sys(capturetest.Load(t, name).Sys())
		if err != nil || denied != 0 {
			t.Errorf("%s: %d denied, %v", name, denied, err)
		}
		want := sysOf(ar.Files)
		maps.DeleteFunc(want, func(entry, _ string) bool { return storage.MatchString(entry) })
		difftest.Same(t, "the capture of "+name, sysOf(got), want)
	}
}

// storage matches the entries of the storage controller in testdata/hosts that has network controllers below it.
var storage = regexp.MustCompile(`/0000:00:0e\.0/[a-z_]+( |$)|devices/0000:00:0e\.0 ->|/drivers/vmd/`)

// sysOf returns the entries below sys/ by name.
func sysOf(files []txtar.File) map[string]string {
	sys := map[string]string{}
	for _, f := range files {
		if strings.HasPrefix(f.Name, "sys/") {
			sys[f.Name] = string(f.Data)
		}
	}
	return sys
}

func TestSecretsAreNamesAndSerialNumbersOfMachine(t *testing.T) {
	sysfs := t.TempDir()
	host, err := os.Hostname()
	must(t, err)
	want := []string{host}
	for _, file := range []string{"product_serial", "product_uuid", "board_serial", "chassis_serial"} {
		want = append(want, "SN "+file)
		difftest.Write(t, filepath.Join(sysfs, "class/dmi/id", file), "SN "+file+"\n", 0o600)
	}
	got := capture.Secrets(sysfs)
	for _, secret := range want {
		if !slices.Contains(got, secret) {
			t.Errorf("%q is not among %q", secret, got)
		}
	}
}

func TestFirstLineDescribesCapturedHost(t *testing.T) {
	for comment, want := range map[string][]string{
		"rack7: ConnectX-6, 8 VFs, Linux 6.12.1\nmissing: a\n": {"rack7", "ConnectX-6, 8 VFs", "6.12.1"},
		"rack7: a NIC\n": {"rack7", "a NIC", ""},
		"rack7":          {"rack7", "", ""},
		"":               {"", "", ""},
	} {
		name, note, release := capture.Captured{Host: &capturefile.Host{Comment: comment}}.Described()
		difftest.Same(t, comment, []string{name, note, release}, want)
	}
	if got := capture.Name("Rack7.Example_net"); got != "rack7-example-net" {
		t.Errorf("got %s", got)
	}
}

var must = difftest.Must

// The offer excludes the interfaces of default routes, also on a captured host.
func TestCaptureContainsUplinks(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		up, peer := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0"}, PeerName: "peer"}, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "peer"}}
		must(t, netlink.LinkAdd(up), netlink.LinkSetUp(up), netlink.LinkSetUp(peer))
		must(t, netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, LinkIndex: up.Index}))
		sys, err := sysfs.Open("/sys")
		must(t, err)
		text, _, err := capture.Take(capture.Source{Title: "a host", Name: "box", Sys: sys.Files(), Parts: capture.KernelParts, Root: t.TempDir(), Scrub: true})
		must(t, err)
		file, err := capturefile.Parse(text)
		must(t, err)
		captured, err := inventory.Captured(file)
		must(t, err)
		difftest.Equal(t, captured.Uplinks, []string{"up0"})
	})
}
