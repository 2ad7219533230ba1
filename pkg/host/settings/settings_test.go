package settings_test

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

var must = difftest.Must

func kernel() settings.Kernel { return settings.Kernel{Kernel: link.NewKernel(os.DirFS("/sys"))} }

func read(t *testing.T, name string) settings.Dump {
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
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		must(t, err, netlink.LinkAdd(bridge), netlink.LinkSetMaster(nic, bridge))
		difftest.Equal(t, read(t, "nic")["promisc"], "")
		for _, c := range []struct {
			promisc string
			users   int
		}{{"on", 2}, {"", 1}} {
			must(t, kernel().Set(named(t, "nic"), "promisc", settings.Dump{"promisc": c.promisc}))
			nic, err = netlink.LinkByName("nic")
			must(t, err)
			difftest.Equal(t, []any{read(t, "nic")["promisc"], nic.Attrs().Promisc}, []any{c.promisc, c.users})
		}
	})
}

// The kernel's answer is longer than the library's buffer.
func TestHundredsOfAltNamesAreReadAndRemoved(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		linktest.AddVeth(t, "nic", "peer", linktest.NewNetns(t))
		k, nic := kernel(), named(t, "nic")
		var names []string
		for n := range 490 {
			names = append(names, fmt.Sprintf("%0127d", n))
		}
		want := settings.Dump{settings.AltNames: strings.Join(names, " ")}
		must(t, k.Set(nic, settings.AltNames, want))
		difftest.Equal(t, read(t, "nic")[settings.AltNames], want[settings.AltNames])
		if i, err := k.Interface("", "nic"); err != nil || i.Name != "nic" {
			t.Errorf("got %+v, %v", i, err)
		}
		linktest.AddVeth(t, "other", "peer2", linktest.NewNetns(t))
		err := k.Set(nic, settings.AltNames, settings.Dump{settings.AltNames: "other free"}) // one that is taken is in the way of none
		difftest.Is(t, err, unix.EEXIST)
		difftest.Says(t, err, `interface "nic": set altnames: "other": `)
		difftest.Equal(t, read(t, "nic")[settings.AltNames], "free")
		must(t, k.Set(nic, settings.AltNames, settings.Dump{}))
		difftest.Equal(t, read(t, "nic")[settings.AltNames], "")
	})
}

func TestSetSetsNameMTUAndMAC(t *testing.T) {
	linktest.RunAlone(t, func(t *testing.T) {
		linktest.AddVeth(t, "net1", "peer", linktest.NewNetns(t)) // the interface is up
		k := kernel()
		nic := named(t, "net1")
		to := settings.Dump{settings.Name: "nic", settings.MTU: settings.Number(1400), settings.MAC: "020000000007"}
		must(t, k.Set(nic, settings.Name, to), k.Set(nic, settings.MTU, to), k.Set(nic, settings.MAC, to))
		got, err := k.Interface("", "nic")
		if err != nil || got.MTU != 1400 || got.MAC.String() != "02:00:00:00:00:07" {
			t.Errorf("got %+v, %v", got, err)
		}
		l, err := netlink.LinkByName("nic")
		if err != nil || l.Attrs().Flags&net.FlagUp == 0 {
			t.Errorf("it stays up: %+v, %v", l, err)
		}
		none := link.Interface{Name: "none", Index: nic.Index + 1000}
		_, err = k.Settings(none)
		difftest.Is(t, err, link.ErrNoInterface)
		difftest.Says(t, err, `interface "none": read settings: `)
		difftest.Says(t, k.Set(none, settings.MTU, to), `interface "none": set mtu: `)
		difftest.Says(t, k.Set(none, settings.Name, to), `interface "none": set name: `)
		difftest.Says(t, k.Set(none, settings.AltNames, settings.Dump{}), `interface "none": set altnames: `)
		difftest.Says(t, k.Set(none, "noarp", settings.Dump{}), `interface "none": set noarp: `)
		difftest.Says(t, k.Set(nic, "none", settings.Dump{}), `set none: devinfo does not know how`)
		difftest.Says(t, k.Set(nic, "alias", settings.Dump{"alias": "x"}), `set alias: encoding/hex: `)
		difftest.Says(t, k.Set(nic, "tcx-egress", settings.Dump{"tcx-egress": "programs [7]"}), `cannot be attached again`)
		difftest.Says(t, k.Set(nic, "rings", settings.Dump{"rings": "sha256:ab"}), `set rings: only the hash of its value is known`)
		difftest.Is(t, k.Set(nic, "rings", settings.Dump{"rings": "ab"}), unix.EBADMSG)
		difftest.Is(t, k.Set(none, "rings", settings.Dump{}), unix.ENODEV)
		channels := nl.NewRtAttr(unix.ETHTOOL_A_CHANNELS_TX_COUNT, nl.Uint32Attr(9999)).Serialize()
		difftest.Says(t, k.Set(nic, "channels", settings.Dump{"channels": hex.EncodeToString(channels)}), "set channels: ")
		difftest.Says(t, k.Set(nic, settings.Name, settings.Dump{settings.Name: "lo"}), `: set name: `) // it is taken
		difftest.Says(t, k.SetVF("none", 0, settings.VFTrust, settings.VF{}), `interface "none": `)
		for _, setting := range (settings.VF{MAC: "a", VLAN: 1, Trust: true, SpoofCheck: true, LinkState: 1, MinRate: 1, NodeGUID: "a"}).Unlike(settings.VF{}) {
			difftest.Says(t, k.SetVF("nic", 3, setting, settings.VF{}), `interface "nic": set `+setting+` of VF 3: `) // a veth has no VFs
		}
		if vf, err := k.VF("nic", 0); vf != nil || err != nil {
			t.Errorf("it has no VFs: %v, %v", vf, err)
		}
		if vf, err := k.VF("none", 0); vf != nil || !errors.Is(err, link.ErrNoInterface) {
			t.Errorf("there is no such interface: %v, %v", vf, err)
		}
		nic = named(t, "nic")
		linktest.EachOpenFailure(t, map[string]func() error{
			"Settings":   func() error { s, err := k.Settings(nic); return cmp.Or(err, fmt.Errorf("%d settings", len(s))) },
			"Set":        func() error { return k.Set(nic, "noarp", settings.Dump{}) },
			"Set xdp":    func() error { return k.Set(nic, "xdpgeneric", settings.Dump{}) },
			"Set rings":  func() error { return k.Set(nic, "rings", settings.Dump{}) },
			"Set names":  func() error { return k.Set(nic, settings.AltNames, settings.Dump{settings.AltNames: "nic2"}) },
			"Set name":   func() error { return k.Set(nic, settings.Name, to) },
			"Conditions": func() error { _, err := settings.Conditions("/proc"); return err },
			"VFs":        func() error { _, err := settings.VFs(); return err },
			"VF":         func() error { _, err := k.VF("nic", 0); return err },
			"SetVF":      func() error { return k.SetVF("nic", 0, settings.VFTrust, settings.VF{}) },
			"Live":       func() error { _, err := hostdev.Live(sysfs.New(os.DirFS("/sys"))); return err },
		})
	})
}

func TestUsableNamesEachBrokenRule(t *testing.T) {
	goldentest.Lines(t, "testdata/usable.txt", func(line string) (output []string) {
		var c struct {
			settings.Condition
			Of            *hostdev.Device
			Carry, Closed bool
		}
		must(t, json.Unmarshal([]byte(line), &c))
		c.Condition.Of, c.Condition.Carry, c.Condition.Closed = c.Of, c.Carry, c.Closed
		for _, f := range settings.Usable(c.Condition) {
			output = append(output, fmt.Sprintf("%s, maybe %v: %s: %s", f.Rule, f.Maybe, f.Found, f.Remedy))
		}
		if c.Dump != nil {
			output = append(output, fmt.Sprint("harmless: ", c.Dump.Harmless()))
		}
		return output
	})
}

func TestUsableConditionsAreRemembered(t *testing.T) {
	linktest.RunAlone(t, func(t *testing.T) {
		must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})) // it has a bus_info, but no hardware
		m := &settings.Memory{Proc: "/nowhere"}
		if list, err := m.Conditions(); err == nil {
			t.Fatalf("without proc: %v", list)
		}
		for _, m.Proc = range []string{"/proc", "/nowhere"} {
			list, err := m.Conditions()
			must(t, err)
			difftest.Equal(t, list, []settings.Condition(nil))
		}
	})
}

// What is stacked on an interface receives the frames of the next pod, from whatever network namespace.
func TestReceiversOfFramesAreNamedAndRemoved(t *testing.T) {
	linktest.RunAlone(t, func(t *testing.T) {
		linktest.AddVeth(t, "nic", "peer", linktest.NewNetns(t))
		k, nic := settings.Kernel{Proc: "/proc"}, named(t, "nic")
		expect := func(what string, stacked, left []string) {
			t.Helper()
			handler, err := k.Stacked(nic, false)
			must(t, err)
			all, err := k.Stacked(nic, true)
			must(t, err)
			rest, err := k.Unstack(nic)
			must(t, err)
			for _, list := range [][]string{handler, all} {
				for n := range list { // without the path of its namespace
					list[n], _, _ = strings.Cut(list[n], " in /proc/")
				}
			}
			difftest.Same(t, what, [][]string{handler, all, rest}, [][]string{stacked, stacked, left})
		}
		expect("none", nil, nil)
		unread, gone := settings.Kernel{Proc: "/nowhere"}, link.Interface{Name: "gone", Index: nic.Index + 1000}
		_, stacked := unread.Stacked(nic, true)
		_, unstacked := unread.Unstack(nic)
		difftest.Is(t, stacked, fs.ErrNotExist)
		difftest.Is(t, unstacked, fs.ErrNotExist)
		_, stacked = k.Stacked(gone, true)
		_, unstacked = k.Unstack(gone)
		difftest.Is(t, stacked, link.ErrNoInterface)
		difftest.Is(t, unstacked, link.ErrNoInterface)
		linktest.AddMacvlan(t, "nic", "spy", linktest.NewNetns(t))
		expect("a macvlan", []string{"macvlan spy"}, nil)
		all, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		must(t, err, unix.SetsockoptPacketMreq(all, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &unix.PacketMreq{Ifindex: int32(nic.Index), Type: unix.PACKET_MR_PROMISC}))
		expect("a program", nil, []string{"1 programs or interfaces that want all frames"})
		hidden := filepath.Join(t.TempDir(), "hidden")
		linktest.AddMacvlan(t, "nic", "spy", "/proc/self/ns/net")
		spy, err := netlink.LinkByName("spy")
		must(t, err, unix.Close(all), linktest.MakeNetns(hidden), linktest.InNetns(hidden, func() error {
			_, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0) // it keeps the namespace
			return err
		}))
		netns, err := os.Open(hidden)
		must(t, err, netlink.LinkSetNsFd(spy, int(netns.Fd())), netns.Close(), unix.Unmount(hidden, unix.MNT_DETACH))
		nameless := []string{"an interface in a network namespace that no process names"}
		expect("a socket", nameless, nameless)
	})
}
