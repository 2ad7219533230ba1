// Package event signals changes of a node's network devices.
package event

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/rtnetlink"
)

// Listen signals changes of network devices until ctx ends: interfaces of the current network namespace and default
// routes (rtnetlink), and devices on the buses and classes that package sysfs reads (the kernel's uevents,
// lib/kobject_uevent.c). An event does not identify the changed device. If the kernel drops messages, Listen signals
// a change.
//
// The channel buffers one event. It is closed when ctx ends or a socket fails.
func Listen(ctx context.Context) (<-chan struct{}, error) {
	routes, err := open(unix.NETLINK_ROUTE, 1<<(unix.RTNLGRP_LINK-1)|1<<(unix.RTNLGRP_IPV4_ROUTE-1)|1<<(unix.RTNLGRP_IPV6_ROUTE-1))
	if err != nil {
		return nil, fmt.Errorf("listen to rtnetlink: %w", err)
	}
	devices, err := open(unix.NETLINK_KOBJECT_UEVENT, 1) // group 1: events from the kernel; group 2: from udev
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to uevents: %w", err), routes.Close())
	}
	ctx, end := context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	var receivers sync.WaitGroup
	receivers.Go(func() { defer end(); receive(routes, matters, changed) })
	receivers.Go(func() { defer end(); receive(devices, concerns, changed) })
	go func() {
		<-ctx.Done()
		_, _ = routes.Close(), devices.Close()
		receivers.Wait()
		close(changed)
	}()
	return changed, nil
}

// open opens a socket for a mask of multicast groups. Reads block until a message arrives or the socket is closed.
func open(protocol int, groups uint32) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

func receive(file *os.File, counts func([]byte) bool, changed chan<- struct{}) {
	message := make([]byte, 64<<10)
	for {
		n, err := file.Read(message)
		switch {
		case errors.Is(err, unix.ENOBUFS): // some messages were lost
		case err != nil:
			return
		case !counts(message[:n]):
			continue
		}
		select {
		case changed <- struct{}{}:
		default: // a signal is pending
		}
	}
}

// podKinds are the kinds of interfaces that are created and removed with pods. They are not devices, and devices are
// not attached to them.
var podKinds = []string{"veth", "netkit", "macvlan", "ipvlan", "macvtap", "ipvtap", "tun", "dummy"}

// matters reports whether an rtnetlink message concerns a default route, or an interface whose kind is not in
// podKinds.
func matters(message []byte) bool {
	const lengthOfDestination = 1 // struct rtmsg: rtm_family, rtm_dst_len
	if len(message) <= unix.SizeofNlMsghdr+lengthOfDestination {
		return false
	}
	header, body := message[:unix.SizeofNlMsghdr], message[unix.SizeofNlMsghdr:]
	switch nl.NativeEndian().Uint16(header[4:]) {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return body[lengthOfDestination] == 0
	}
	if body[0] == unix.AF_BRIDGE { // rtnetlink has already reported this interface outside the bridge
		return false
	}
	l, err := rtnetlink.ParseLink(body, rtnetlink.Local)
	return err != nil || !slices.Contains(podKinds, l.Kind)
}

// subsystems are those whose devices package sysfs reads.
var subsystems = []string{"net", "pci", "auxiliary", "vdpa", "virtio", "infiniband"}

// concerns reports whether a uevent concerns a network device. Interfaces without hardware do not count, because
// rtnetlink reports them.
func concerns(message []byte) bool {
	has := func(field string) bool { return bytes.Contains(message, []byte("\x00"+field)) }
	return !has("DEVPATH=/devices/virtual/net/") && slices.ContainsFunc(subsystems, func(name string) bool { return has("SUBSYSTEM=" + name + "\x00") })
}
