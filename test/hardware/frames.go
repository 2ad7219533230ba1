package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link"
)

const framesBefore = "frames between two VFs, before"

const experiment = 0x88b5 // EtherType for local experiments (IEEE 802)

// ownMAC is a locally administered address of this program.
func ownMAC(n int) net.HardwareAddr { return net.HardwareAddr{0x02, 0xde, 0x71, 0xf0, 0, byte(n)} }

// pairs returns the targets of each PF that has two with interfaces.
func pairs(targets []*target) (list [][2]*target) {
	of := map[string]*target{}
	for _, t := range targets {
		if t.Parent == nil || t.IfName == "" || len(t.vdpa) > 0 || t.taken {
			continue
		}
		if other := of[t.Parent.PCI]; other != nil {
			list = append(list, [2]*target{other, t})
			delete(of, t.Parent.PCI)
			continue
		}
		of[t.Parent.PCI] = t
	}
	return list
}

// exchange sends frames between the VFs of each pair. Frames that did not arrive before the checks need not arrive after:
// the PF may have no link, or forbid it.
func (n *node) exchange(ctx context.Context, targets []*target, name string, say func(result), before map[string]bool) map[string]bool {
	arrived := map[string]bool{}
	for _, p := range pairs(targets) {
		if ctx.Err() != nil {
			return arrived
		}
		r := n.one(ctx, check{name: name, run: func(ctx context.Context, n *node, _ *target, _ *time.Duration) error {
			err := n.frames(ctx, p)
			if err != nil && !before[p[0].PCI] {
				return notApplicable(err.Error())
			}
			return err
		}}, p[:]...)
		arrived[p[0].PCI] = r.Outcome == passedOutcome
		say(r)
	}
	return arrived
}

// frames moves both VFs into pods, gives them MACs of this program if they take them, and sends a frame each way.
func (n *node) frames(ctx context.Context, p [2]*target) error {
	var pods [2]string
	var addresses [2]net.HardwareAddr
	for k, t := range p {
		l, err := netlink.LinkByName(t.IfName)
		if err != nil {
			return err
		}
		if pods[k], err = newPod(fmt.Sprint("frames", k)); err != nil {
			return err
		}
		if err := moveTo(l, pods[k]); err != nil {
			return err
		}
		err = link.Within(pods[k], func() error {
			addresses[k] = ownMAC(k)
			if netlink.LinkSetHardwareAddr(l, addresses[k]) != nil {
				addresses[k] = l.Attrs().HardwareAddr
			}
			return netlink.LinkSetUp(l)
		})
		if err != nil {
			return err
		}
	}
	for k := range p {
		if err := oneWay(ctx, pods, addresses, k, p); err != nil {
			return err
		}
	}
	return nil
}

func oneWay(ctx context.Context, pods [2]string, addresses [2]net.HardwareAddr, from int, p [2]*target) error {
	frame := append(slices.Concat(addresses[1-from], addresses[from], []byte{experiment >> 8, experiment & 0xff}), make([]byte, 50)...)
	copy(frame[14:], "devinfo-try")
	var sender, receiver int
	open := func(to *int, t *target) func() error {
		return func() (err error) {
			i, err := net.InterfaceByName(t.IfName)
			if err != nil {
				return err
			}
			if *to, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
				return err
			}
			_ = unix.SetsockoptTimeval(*to, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000})
			return unix.Bind(*to, &unix.SockaddrLinklayer{Protocol: experiment>>8 | experiment<<8&0xffff, Ifindex: i.Index})
		}
	}
	if err := errors.Join(link.Within(pods[from], open(&sender, p[from])), link.Within(pods[1-from], open(&receiver, p[1-from]))); err != nil {
		return err
	}
	defer unix.Close(sender)
	defer unix.Close(receiver)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && ctx.Err() == nil; {
		if _, err := unix.Write(sender, frame); err != nil && !errors.Is(err, unix.ENETDOWN) && !errors.Is(err, unix.ENOBUFS) {
			return os.NewSyscallError("send", err)
		}
		got := make([]byte, 2000)
		if size, _ := unix.Read(receiver, got); size >= len(frame) && bytes.Equal(got[:len(frame)], frame) {
			return nil
		}
	}
	return fmt.Errorf("no frame from %s has arrived at %s: %s", p[from].PCI, p[1-from].PCI, strings.Join(carriers(pods, p), ", "))
}

func carriers(pods [2]string, p [2]*target) (list []string) {
	for k, t := range p {
		_ = link.Within(pods[k], func() error {
			l, err := netlink.LinkByName(t.IfName)
			if err == nil {
				list = append(list, fmt.Sprintf("%s is %s", t.PCI, l.Attrs().OperState))
			}
			return err
		})
	}
	return list
}
