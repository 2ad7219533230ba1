package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Events signals, until ctx ends, that network devices have changed: interfaces of our own
// network namespace and default routes (rtnetlink), devices on the buses and classes that
// package sysfs reads (uevents of the kernel, lib/kobject_uevent.c). It does not say what
// changed: a lost event is no error, since the next one, or reading everything, makes up
// for it.
//
// One token waits in the channel while nobody reads it. A later error closes the channel.
func Events(ctx context.Context) (<-chan struct{}, error) {
	routes, err := listen(unix.NETLINK_ROUTE, groups(unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE))
	if err != nil {
		return nil, fmt.Errorf("listen to rtnetlink: %w", err)
	}
	devices, err := listen(unix.NETLINK_KOBJECT_UEVENT, groups(1)) // the kernel's own; 2 is udev's
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to uevents: %w", err), routes.Close())
	}
	changed, ended := make(chan struct{}, 1), make(chan struct{}, 2)
	stop := context.AfterFunc(ctx, func() { _, _ = routes.Close(), devices.Close() })
	for file, counts := range map[*os.File]func([]byte) bool{routes: matters, devices: concerns} {
		go func() {
			receive(file, counts, changed)
			ended <- struct{}{}
		}()
	}
	go func() {
		<-ended
		stop()
		_, _ = routes.Close(), devices.Close()
		<-ended
		close(changed)
	}()
	return changed, nil
}

// groups is a mask of multicast groups, which are numbered from 1.
func groups(numbers ...uint) (mask uint32) {
	for _, n := range numbers {
		mask |= 1 << (n - 1)
	}
	return mask
}

// listen opens a socket in which a read waits, and ends when it is closed.
func listen(protocol int, groups uint32) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// receive signals messages that matter, until the socket is closed.
func receive(file *os.File, counts func([]byte) bool, changed chan<- struct{}) {
	message := make([]byte, 64<<10)
	for {
		n, err := file.Read(message)
		switch {
		case errors.Is(err, unix.ENOBUFS): // some were lost
		case err != nil:
			return
		case !counts(message[:n]):
			continue
		}
		select {
		case changed <- struct{}{}:
		default: // it is known already
		}
	}
}

// podKinds are the kinds of interfaces that come and go with pods, and are neither a device nor the
// master of one.
var podKinds = []string{"veth", "netkit", "macvlan", "ipvlan", "macvtap", "ipvtap", "tun", "dummy"}

// matters reports whether an rtnetlink message is about a default route, or about an interface other
// than those of pods.
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
	if body[0] == unix.AF_BRIDGE { // what a bridge says of its port has been said of the interface
		return false
	}
	f, err := parse(body, local)
	return err != nil || !slices.Contains(podKinds, f.Kind)
}

// concerns reports whether a uevent is about a network device. Of those without hardware rtnetlink
// tells.
func concerns(message []byte) bool {
	if bytes.Contains(message, []byte("\x00DEVPATH=/devices/virtual/net/")) {
		return false
	}
	for field := range bytes.SplitSeq(message, []byte{0}) {
		if subsystem, ok := bytes.CutPrefix(field, []byte("SUBSYSTEM=")); ok {
			switch string(subsystem) {
			case "net", "pci", "auxiliary", "vdpa", "virtio", "infiniband":
				return true
			}
		}
	}
	return false
}
