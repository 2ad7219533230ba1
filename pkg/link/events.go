package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

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

// matters reports whether an rtnetlink message is about an interface or a default route:
// those of pods come and go all the time.
func matters(message []byte) bool {
	const lengthOfDestination = unix.SizeofNlMsghdr + 1 // struct rtmsg: rtm_family, rtm_dst_len
	if len(message) <= lengthOfDestination {
		return false
	}
	switch nl.NativeEndian().Uint16(message[4:]) {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return message[lengthOfDestination] == 0
	}
	return true
}

// concerns says whether a uevent is about a network device.
func concerns(message []byte) bool {
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
