package capture_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/vishvananda/netlink"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/capturefile"
	"devinfo-cni.io/pkg/capturefile/capturetest"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/ctl/capture"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/journal"
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

// The test fails for a new field of a record until one of the two lists contains it.
func TestCaptureContainsOnlyFieldsThatCommandsRead(t *testing.T) {
	node := config.DefaultNode()
	for file, c := range map[string]struct {
		record any
		shown  string
	}{
		node.StateDir + "/attachments/net@c0ffee@net1": {new(journal.Entry),
			`Key.Network Key.ContainerID Key.IfName Netns BootID Pod Requested.DeviceIDs[].Key Requested.DeviceIDs[].ID Requested.Declared Requested.PCIID
			Requested.SocketPath File Dir Info Interface Device.Type Device.ID CDI.Dir CDI.File CDI.Device SocketDir Reason Leases[].ID Leases[].Mode`},
		node.StateDir + "/claims/u1": {new(journal.Claim), `UID Part Namespace Name BootID Pods[] Netns Leases[].ID Leases[].Mode`},
		"/claims/u1.json": {new(state.Claim),
			`Namespace Name UID Pod.Namespace Pod.Name Pod.UID Attachments[].Request Attachments[].Pool
			Attachments[].Device Attachments[].ShareID Attachments[].NodeDevice.Ref.Kind Attachments[].NodeDevice.Ref.PCI Attachments[].NodeDevice.Ref.Aux Attachments[].NodeDevice.Ref.VDPA
			Attachments[].NodeDevice.Ref.IfName Attachments[].Driver Attachments[].Network Attachments[].CNIVersion Attachments[].IfName Attachments[].Phase
			Attachments[].Error Attachments[].Ready.Status Attachments[].Execution.Sandbox Attachments[].Execution.Netns
			Attachments[].Execution.BootID Attachments[].Execution.InfoFile Attachments[].Execution.Info Attachments[].Execution.DelError
			Undeleted[].Request Undeleted[].Pool Undeleted[].Device Undeleted[].ShareID Undeleted[].NodeDevice.Ref.Kind Undeleted[].NodeDevice.Ref.PCI
			Undeleted[].NodeDevice.Ref.Aux Undeleted[].NodeDevice.Ref.VDPA Undeleted[].NodeDevice.Ref.IfName Undeleted[].Driver Undeleted[].Network
			Undeleted[].CNIVersion Undeleted[].IfName Undeleted[].Phase Undeleted[].Error Undeleted[].Ready.Status
			Undeleted[].Execution.Sandbox Undeleted[].Execution.Netns Undeleted[].Execution.BootID Undeleted[].Execution.InfoFile
			Undeleted[].Execution.Info Undeleted[].Execution.DelError`},
		"/claims/offer": {new(state.Offer),
			`Rules Digest Problem Devices[].Name Devices[].Ref.Kind Devices[].Ref.PCI Devices[].Ref.Aux Devices[].Ref.VDPA Devices[].Ref.IfName Devices[].Sharing
			Devices[].ResourceName Devices[].Why Unmatched[].Rule Unmatched[].Why Unmatched[].Nearest`},
	} {
		root, planted := t.TempDir(), map[string]bool{}
		plant(reflect.ValueOf(c.record).Elem(), "", planted)
		text, err := json.Marshal(c.record)
		must(t, err)
		text = []byte(`{"unknown":"{unknown}",` + string(text[1:]))
		difftest.Write(t, filepath.Join(root, file), string(text), 0o600)
		difftest.Contains(t, string(text), slices.Collect(maps.Keys(planted))...)
		got := taken(t, capture.Source{Name: "x", Title: "y", Sys: fstest.MapFS{}, Root: root, Parts: parts{}.Parts, State: capture.State{Settings: node, ClaimDir: "/claims"}}, false)
		var shown []string
		for _, m := range secrets.FindAllStringSubmatch(got, -1) {
			shown = append(shown, m[1])
		}
		want := strings.Fields(c.shown)
		slices.Sort(want)
		slices.Sort(shown)
		difftest.Same(t, file, slices.Compact(shown), want)
	}
}

var secrets = regexp.MustCompile(`\{([A-Za-z.\[\]]+)\}`)

// plant writes a secret with the field's path into each field that can contain text, and adds it to planted.
func plant(v reflect.Value, path string, planted map[string]bool) {
	_, encodesItself := v.Addr().Interface().(json.Marshaler)
	secret := "{" + strings.TrimPrefix(path, ".") + "}"
	switch {
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes(fmt.Appendf(nil, `{"type":"x","key":%q}`, secret))
		planted[secret] = true
	case encodesItself: // times and quantities
	case v.Kind() == reflect.String:
		v.SetString(secret)
		planted[secret] = true
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		plant(v.Elem(), path, planted)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		plant(v.Index(0), path+"[]", planted)
	case v.Kind() == reflect.Array:
		for n := range v.Len() {
			plant(v.Index(n), path+"[]", planted)
		}
	case v.Kind() == reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		plant(key, path+".key", planted)
		plant(value, path+".value", planted)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.Struct:
		for n := range v.NumField() {
			if f := v.Type().Field(n); f.IsExported() {
				plant(v.Field(n), path+"."+f.Name, planted)
			}
		}
	}
}
