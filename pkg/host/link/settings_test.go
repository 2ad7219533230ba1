package link_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

func settings(t *testing.T, name string) link.Settings {
	t.Helper()
	s, err := kernel().Settings(named(t, name))
	must(t, err)
	return s
}

func named(t *testing.T, name string) link.Interface {
	t.Helper()
	i, err := kernel().Interface("", name)
	must(t, err)
	return i
}

// A bridge makes its ports promiscuous without setting the user's flag.
func TestPromiscIsOnlyTheUsersFlag(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		linktest.AddVeth(t, "nic", "peer", linktest.NewNetns(t))
		nic, err := netlink.LinkByName("nic")
		must(t, err)
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		if err := netlink.LinkAdd(bridge); errors.Is(err, syscall.EOPNOTSUPP) {
			bridge = nil
			must(t, netlink.LinkAdd(&netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "tap0", ParentIndex: nic.Attrs().Index}, Mode: netlink.MACVLAN_MODE_PASSTHRU}}))
		} else {
			must(t, err)
			must(t, netlink.LinkSetMaster(nic, bridge))
		}
		promiscuity := func() int {
			l, err := netlink.LinkByName("nic")
			must(t, err)
			return l.Attrs().Promisc
		}
		before := promiscuity()
		if before == 0 || settings(t, "nic")["promisc"] != "" {
			t.Fatalf("promiscuity %d, %+v", before, settings(t, "nic"))
		}
		must(t, kernel().Set(named(t, "nic"), "promisc", link.Settings{"promisc": "on"}))
		if settings(t, "nic")["promisc"] == "" || promiscuity() != before+1 {
			t.Errorf("set: promiscuity %d, before %d", promiscuity(), before)
		}
		must(t, kernel().Set(named(t, "nic"), "promisc", link.Settings{}))
		if settings(t, "nic")["promisc"] != "" || promiscuity() != before {
			t.Errorf("cleared: promiscuity %d, before %d", promiscuity(), before)
		}
	})
}

// The kernel's answer is longer than the library's buffer.
func TestHundredsOfAltNamesAreReadAndRemoved(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		linktest.AddVeth(t, "nic", "peer", linktest.NewNetns(t))
		k := kernel()
		for n := range 490 {
			must(t, k.SetAltName(named(t, "nic"), fmt.Sprintf("%0127d", n), true))
		}
		names := strings.Fields(settings(t, "nic")[link.AltNames])
		if len(names) != 490 {
			t.Errorf("%d altnames", len(names))
		}
		if i, err := k.Interface("", "nic"); err != nil || i.Name != "nic" {
			t.Errorf("got %+v, %v", i, err)
		}
		for _, name := range names {
			must(t, k.SetAltName(named(t, "nic"), name, false))
		}
		difftest.Equal(t, settings(t, "nic")[link.AltNames], "")
	})
}

func TestRecordedHostEqualsKernel(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		pod := linktest.NewNetns(t)
		linktest.AddVeth(t, "veth0", "eth0", pod)
		const here = "/proc/self/ns/net"
		linktest.AddVeth(t, "veth1", "veth2", here)
		linktest.AddMacvlan(t, "veth1", "net1", pod)
		linktest.AddMacvlan(t, "veth1", "mac0", here)
		host := recorded(t, pod)
		for _, i := range []struct{ netns, name string }{
			{"", "lo"}, {"", "veth0"}, {"", "veth1"}, {"", "mac0"}, {pod, "lo"}, {pod, "eth0"}, {pod, "net1"},
		} {
			want, err := kernel().Interface(i.netns, i.name)
			must(t, err)
			got, err := host.Interface(i.netns, i.name)
			must(t, err)
			equal(t, got, want)
		}
		if host.HasNetns("/run/netns/other") {
			t.Error("a namespace that was not requested exists")
		}
	})
}

// recorded returns this host, recorded in a capture.
func recorded(t *testing.T, pod string) *linkhost.Kernel {
	t.Helper()
	all := map[string]any{}
	record := func(part string, v any, err error) {
		if err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		all[part] = v
	}
	own, err := link.Recorder{}.Interfaces("")
	record("ip-link", own, err)
	pods, err := link.Recorder{}.Interfaces(pod)
	record("netns", map[string]any{pod: pods}, err)
	ports, err := link.Recorder{}.Ports()
	record("devlink-port", map[string]any{"port": ports}, err)
	eswitches, err := link.Recorder{}.Eswitches()
	record("devlink-eswitch", map[string]any{"dev": eswitches}, err)
	text := "this host\n"
	for part, v := range all {
		data, err := json.Marshal(v)
		must(t, err)
		text += fmt.Sprintf("-- netlink/%s.json --\n%s\n", part, data)
	}
	file, err := capturefile.Parse([]byte(text))
	must(t, err)
	host, err := linkhost.New(file)
	must(t, err)
	return host
}

func TestRecordOfMissingNamespaceIsAnError(t *testing.T) {
	_, err := link.Recorder{}.Interfaces("/nowhere")
	difftest.Is(t, err, link.ErrNoNetns)
}

const pf = "0000:01:00.0"

// broken returns a tree in which reading one file fails with err. If file is "", reading any phys_port_name or
// phys_switch_id fails.
func broken(sys fs.FS, file string, err error) fs.FS {
	return capturetest.Tree{FS: sys, BeforeCall: func(name string) error {
		if name == file || file == "" && strings.Contains(name, "phys_") {
			return err
		}
		return nil
	}}
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func eswitch(sys fs.FS, mode string, err error) link.Eswitch {
	return link.Eswitch{
		Sys:   sys,
		Mode:  func(string) (string, error) { return mode, err },
		Ports: func(string) ([]link.PortRecord, error) { return nil, err },
	}
}

func TestSwitchdevPrefersModeToSwitchID(t *testing.T) {
	net := "bus/pci/devices/" + pf + "/net/"
	withID := fstest.MapFS{net + "eth0/phys_switch_id": file("b8cef603\n")}
	without := fstest.MapFS{net + "eth0/phys_switch_id": file("\n"), net + "eth1/mtu": file("1500\n")}
	for name, test := range map[string]struct {
		eswitch link.Eswitch
		want    bool
		err     error
	}{
		"mode without interface":     {eswitch(fstest.MapFS{}, "switchdev", nil), true, nil},
		"mode, id unreadable":        {eswitch(broken(withID, "", syscall.EIO), "switchdev", nil), true, nil},
		"no id, devlink broken":      {eswitch(without, "", syscall.EMSGSIZE), false, nil},
		"legacy mode, id":            {eswitch(withID, "legacy", nil), false, nil},
		"no devlink, id":             {eswitch(withID, "", syscall.ENOENT), true, nil},
		"PF without devlink, id":     {eswitch(withID, "", syscall.ENODEV), true, nil},
		"devlink without a mode, id": {eswitch(withID, "", nil), true, nil},
		"unknown mode, id":           {eswitch(withID, "unknown", nil), true, nil},
		"no devlink, empty id":       {eswitch(without, "", syscall.ENODEV), false, nil},
		"no devlink, no interface":   {eswitch(fstest.MapFS{}, "", syscall.ENODEV), false, nil},
		"id not supported":           {eswitch(broken(withID, "", syscall.EOPNOTSUPP), "", nil), false, nil},
		"id unreadable":              {eswitch(broken(withID, "", syscall.EIO), "", nil), false, syscall.EIO},
		"devlink broken":             {eswitch(withID, "", syscall.EMSGSIZE), false, syscall.EMSGSIZE},
	} {
		got, err := test.eswitch.Switchdev(pf)
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %v, %v; want %v, %v", name, got, err, test.want, test.err)
		}
		if err != nil && !strings.Contains(err.Error(), pf) {
			t.Errorf("%s: %q does not name the PF", name, err)
		}
	}
}

func TestSwitchdevReadsFourInterfacesAtMost(t *testing.T) {
	sys := fstest.MapFS{}
	for i := range 1024 {
		sys["bus/pci/devices/"+pf+"/net/eth"+string(rune('a'+i))+"/phys_switch_id"] = file("\n")
	}
	read := 0
	tree := capturetest.Tree{FS: sys, BeforeCall: func(string) error { read++; return nil }}
	for mode, want := range map[string]bool{"": false, "switchdev": true} { // other interfaces may have an ID
		read = 0
		on, err := eswitch(tree, mode, nil).Switchdev(pf)
		if on != want || err != nil || read != 1+4 { // the directory and four files
			t.Errorf("%q: %v, %v after %d files", mode, on, err, read)
		}
	}
}

func TestPFMustBePCIAddress(t *testing.T) {
	e := eswitch(fstest.MapFS{}, "switchdev", nil)
	for _, name := range []string{"", "eth0", "../0000:01:00.0", "netdevsim1"} {
		if on, err := e.Switchdev(name); on || err == nil {
			t.Errorf("Switchdev(%q): %v, %v", name, on, err)
		}
		if rep, ok, err := e.Representor(name, link.VF, 0); ok || err == nil {
			t.Errorf("Representor(%q): %q, %v, %v", name, rep, ok, err)
		}
	}
	if on, err := e.Switchdev("0000:AB:00.0"); !on || err != nil {
		t.Errorf("capitals: %v, %v", on, err)
	}
}
