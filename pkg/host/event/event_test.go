package event

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

func TestInterfacesAndDefaultRoutesAreEvents(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		changed, err := Listen(ctx)
		difftest.Must(t, err)
		difftest.Equal(t, cap(changed), 1)
		sender(t)("pci")
		wait(t, changed, true)
		linktest.AddVeth(t, "veth0", "veth1", "/proc/self/ns/net")
		veth, err := netlink.LinkByName("veth0")
		difftest.Must(t, err)
		for _, all := range []string{"0.0.0.0/0", "::/0"} {
			_, to, _ := net.ParseCIDR(all)
			err := netlink.RouteAdd(&netlink.Route{Dst: to, LinkIndex: veth.Attrs().Index, Scope: netlink.SCOPE_LINK})
			if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
				continue // a kernel without IPv6
			}
			difftest.Must(t, err)
			wait(t, changed, true)
		}
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		difftest.Must(t, netlink.LinkAdd(bridge))
		wait(t, changed, true)
		difftest.Must(t, netlink.LinkDel(bridge))
		wait(t, changed, true)
		stop()
		for more := true; more; { // drain earlier events
			more = wait(t, changed, false)
		}
	})
}

// sender returns a function that sends an event as the kernel does.
func sender(t *testing.T) func(subsystem string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT)
	difftest.Must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return func(subsystem string) {
		t.Helper()
		difftest.Must(t, unix.Sendto(fd, []byte("bind@/devices/a\x00SUBSYSTEM="+subsystem+"\x00"), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}))
	}
}

func TestLostMessagesAreAnEvent(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		file, err := open(unix.NETLINK_KOBJECT_UEVENT, 1)
		difftest.Must(t, err)
		defer file.Close()
		socket, err := file.SyscallConn()
		difftest.Must(t, err, socket.Control(func(fd uintptr) { difftest.Must(t, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1)) }))
		send := sender(t)
		for range 100 { // more than its buffer holds
			send("block")
		}
		changed := make(chan struct{}, 1)
		go receive(file, concerns, changed)
		wait(t, changed, true)
	})
}

func TestSocketThatCannotBeOpenedIsAnError(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		send := sender(t)
		linktest.EachOpenFailure(t, map[string]func() error{"Listen": func() error {
			ctx, stop := context.WithCancel(t.Context())
			changed, err := Listen(ctx)
			if err == nil {
				send("pci")
				wait(t, changed, true)
			}
			stop()
			for err == nil && wait(t, changed, false) { // until it is closed
			}
			return err
		}})
	})
}

// A busy node adds and removes interfaces of pods every second, and each event would cause a read of the whole node.
func TestPodInterfacesAreNotEvents(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		links, err := open(unix.NETLINK_ROUTE, 1<<(unix.RTNLGRP_LINK-1))
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
	for bits, want := range map[int]bool{0: true, 24: false} {
		for _, kind := range []uint16{unix.RTM_NEWROUTE, unix.RTM_DELROUTE} {
			route := make([]byte, unix.SizeofNlMsghdr+unix.SizeofRtMsg)
			nl.NativeEndian().PutUint16(route[4:], kind)
			route[unix.SizeofNlMsghdr+1] = byte(bits)
			difftest.Same(t, fmt.Sprint("route ", bits), matters(route), want)
		}
	}
	difftest.Equal(t, matters(make([]byte, unix.SizeofNlMsghdr+1)), false) // truncated
	difftest.Equal(t, matters(make([]byte, unix.SizeofNlMsghdr+2)), true)  // an interface that cannot be read
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
