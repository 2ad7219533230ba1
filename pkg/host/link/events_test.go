package link

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

func TestAddedAndRemovedInterfacesAreEvents(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		changed, err := Events(ctx)
		difftest.Must(t, err)
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		difftest.Must(t, netlink.LinkAdd(bridge))
		wait(t, changed, true)
		difftest.Must(t, netlink.LinkDel(bridge))
		wait(t, changed, true)
		stop()
		for open := true; open; { // drain earlier events
			open = wait(t, changed, false)
		}
	})
}

// A busy node adds and removes interfaces of pods every second, and each event would cause a read of the whole node.
func TestPodInterfacesAreNotEvents(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		links, err := listen(unix.NETLINK_ROUTE, 1<<(unix.RTNLGRP_LINK-1))
		difftest.Must(t, err)
		defer links.Close()
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		difftest.Must(t, netlink.LinkAdd(bridge))
		linktest.AddVeth(t, "veth0", "veth1", "/proc/self/ns/net")
		veth, err := netlink.LinkByName("veth0")
		difftest.Must(t, err)
		difftest.Must(t, netlink.LinkSetMaster(veth, bridge)) // the bridge also sends messages about its port
		difftest.Must(t, netlink.LinkDel(veth))
		difftest.Must(t, netlink.LinkDel(bridge))
		heard := map[bool]int{}
		message := make([]byte, 64<<10)
		for deleted := false; !deleted; {
			n, err := links.Read(message)
			difftest.Must(t, err)
			about := bytes.Contains(message[:n], []byte("veth"))
			if matters(message[:n]) == about {
				t.Errorf("matters: %v: %q", !about, message[:n])
			}
			heard[about]++
			deleted = !about && nl.NativeEndian().Uint16(message[4:]) == unix.RTM_DELLINK
		}
		if heard[true] < 4 || heard[false] < 2 {
			t.Errorf("messages about the veth, the bridge: %v", heard)
		}
	})
	for uevent, want := range map[string]bool{
		"add@/devices/virtual/net/veth0\x00ACTION=add\x00DEVPATH=/devices/virtual/net/veth0\x00SUBSYSTEM=net\x00":                               false,
		"add@/devices/pci0000:00/0000:00:03.0/net/eth1\x00ACTION=add\x00DEVPATH=/devices/pci0000:00/0000:00:03.0/net/eth1\x00SUBSYSTEM=net\x00": true,
		"bind@/devices/pci0000:00/0000:00:03.0\x00ACTION=bind\x00DEVPATH=/devices/pci0000:00/0000:00:03.0\x00SUBSYSTEM=pci\x00":                 true,
		"add@/devices/virtual/block/loop0\x00ACTION=add\x00DEVPATH=/devices/virtual/block/loop0\x00SUBSYSTEM=block\x00":                         false,
	} {
		difftest.Same(t, uevent, concerns([]byte(uevent)), want)
	}
}

// wait waits for an event, and reports whether the channel was open.
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

// The first default route has two next hops, the second is in a separate table, and the third is an IPv6 route.
func TestUsesListsInterfacesWithRoutesAndAddresses(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		if uplinks, others, err := (Recorder{}).Uses(nil); len(uplinks)+len(others) > 0 || err != nil {
			t.Fatalf("without routes: %v, %v, %v", uplinks, others, err)
		}
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
			"IPv6":             {Dst: all6, LinkIndex: index["up3"]},
			"no default route": {Dst: &net.IPNet{IP: net.IPv4(10, 99, 0, 0), Mask: net.CIDRMask(16, 32)}, LinkIndex: index["nic1"], Scope: netlink.SCOPE_LINK},
			"a nexthop object": {Dst: all4, NHID: 3, Table: 1002},
			"a nexthop group":  {Dst: all4, NHID: 5, Table: 1003},
			"unreachable":      {Dst: all4, Type: unix.RTN_UNREACHABLE, Table: 1001},
		} {
			if err := netlink.RouteAdd(&r); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		links, err := Recorder{}.Interfaces("")
		difftest.Must(t, err)
		uplinks, others, err := Recorder{}.Uses(links)
		want := map[string]string{
			"up0": "has the address 10.0.0.1/24", "up1": "has the address 10.1.0.1/24", "up2": "has the address 10.2.0.1/24", "nic1": "has a route to 10.99.0.0/16",
		}
		if err != nil || !slices.Equal(uplinks, []string{"up0", "up1", "up2", "up3", "up4", "up5"}) || !maps.Equal(others, want) {
			t.Errorf("got %v, %v, %v", uplinks, others, err)
		}
	})
}

func up(t *testing.T, name, address string) (index int) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	difftest.Must(t, err)
	a, err := netlink.ParseAddr(address)
	difftest.Must(t, err)
	difftest.Must(t, netlink.AddrAdd(l, a))
	difftest.Must(t, netlink.LinkSetUp(l))
	return l.Attrs().Index
}

func current(t *testing.T) (netns string) {
	t.Helper()
	netns, err := os.Readlink(ourNetns)
	difftest.Must(t, err)
	return netns
}

func TestWithinReturnsErrorOfFunctionUnchanged(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		pod := linktest.NewNetns(t)
		here, there := current(t), ""
		difftest.Must(t, linktest.InNetns(pod, func() error { there = current(t); return nil }))
		for path, want := range map[string]string{"": here, "/proc/self/ns/net": here, pod: there} {
			for _, result := range []error{nil, &fs.PathError{Op: "bind", Path: "x", Err: syscall.EPERM}} {
				in := ""
				if err := within(path, func() error { in = current(t); return result }); err != result || in != want {
					t.Errorf("%q: in %s, error %v, want %s, %v", path, in, err, want, result)
				}
			}
			difftest.Equal(t, current(t), here)
		}
	})
}

func TestPathThatIsNotNetnsIsErrNoNetns(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		plain, fifo, gone := filepath.Join(dir, "plain"), filepath.Join(dir, "fifo"), linktest.NewNetns(t)
		difftest.Must(t, os.WriteFile(plain, nil, 0o644), unix.Mkfifo(fifo, 0o644), CheckNetns(gone),
			unix.Unmount(gone, unix.MNT_DETACH)) // between the check and the entry
		defer unix.Mount(ourNetns, gone, "", unix.MS_BIND, "") // for NewNetns, which unmounts it
		for path, why := range map[string]error{
			plain: nil, dir: nil, fifo: nil, gone: nil, "/proc/self/status": nil, "/proc": nil,
			"/proc/self/ns/mnt": syscall.EINVAL, plain + "/below": syscall.ENOTDIR, plain + "-absent": fs.ErrNotExist, "/proc/0/ns/net": fs.ErrNotExist,
		} {
			err := within(path, func() error { t.Errorf("%s is entered", path); return nil })
			if !errors.Is(err, ErrNoNetns) || why != nil && !errors.Is(err, why) {
				t.Errorf("%s: %v", path, err)
			}
			_, err = NewKernel(os.DirFS("/sys")).Interface(path, "lo")
			if !errors.Is(err, ErrNoNetns) || errors.Is(err, ErrNoInterface) || strings.Count(err.Error(), path) != 1 {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
}

// setns(2) needs CAP_SYS_ADMIN even for the current network namespace.
func TestProcessWithoutPrivilegeEntersOnlyItsOwnNetns(t *testing.T) {
	const confined, own = "DEVINFO_POD", "/run/own"
	if pod := os.Getenv(confined); pod != "" {
		for _, path := range []string{"", "/proc/self/ns/net", own} {
			if err := within(path, func() error { return nil }); err != nil {
				t.Errorf("own namespace %q: %v", path, err)
			}
		}
		err := within(pod, func() error { t.Error("the pod's namespace is entered"); return nil })
		if !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrNoNetns) {
			t.Errorf("the pod's namespace: %v", err)
		}
		return
	}
	linktest.Run(t, func(t *testing.T) {
		difftest.Must(t, os.WriteFile(own, nil, 0o444), unix.Mount(ourNetns, own, "", unix.MS_BIND, ""))
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), confined+"="+linktest.NewNetns(t))
		runtime.LockOSThread() // until the test ends: the thread keeps the smaller set
		difftest.Must(t, unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
