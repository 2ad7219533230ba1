package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/link"
)

// spoilt is a pod that sets what it can, and an administrator who sets the VF on its PF.
func spoilt(ctx context.Context, n *node, t *target, _ *time.Duration) error {
	pod, err := newPod("spoilt")
	if err != nil {
		return err
	}
	var set []string
	try := func(what string, err error) {
		if err == nil {
			set = append(set, what)
		}
	}
	if t.Parent != nil && t.Number != nil {
		if pf, err := netlink.LinkByName(t.Parent.IfName); err == nil {
			try("trust", netlink.LinkSetVfTrust(pf, *t.Number, true))
			try("spoofchk", netlink.LinkSetVfSpoofchk(pf, *t.Number, false))
			try("vlan", netlink.LinkSetVfVlan(pf, *t.Number, 7))
			try("rate", netlink.LinkSetVfRate(pf, *t.Number, 0, 100))
		}
	}
	l, err := netlink.LinkByName(t.IfName)
	if err != nil {
		return err
	}
	if err := moveTo(l, pod); err != nil {
		return err
	}
	err = link.Within(pod, func() error {
		try("name", netlink.LinkSetName(l, ifName))
		if len(l.Attrs().HardwareAddr) == 6 {
			try("MAC", netlink.LinkSetHardwareAddr(l, []byte(ownMAC(6))))
		}
		try("MTU", netlink.LinkSetMTU(l, l.Attrs().MTU-100))
		try("promisc", netlink.SetPromiscOn(l))
		try("allmulticast", netlink.LinkSetAllmulticastOn(l))
		try("alias", netlink.LinkSetAlias(l, "devinfo-try"))
		try("group", netlink.LinkSetGroup(l, 7))
		try("txqueuelen", netlink.LinkSetTxQLen(l, 3))
		try("arp", netlink.LinkSetARPOff(l))
		try("up", netlink.LinkSetUp(l))
		return nil
	})
	if err == nil && len(set) < 5 {
		err = fmt.Errorf("only %s could be set", strings.Join(set, ", "))
	}
	return err
}

func moveTo(l netlink.Link, pod string) error {
	ns, err := os.Open(pod)
	if err != nil {
		return err
	}
	defer ns.Close()
	return netlink.LinkSetNsFd(l, int(ns.Fd()))
}

// reset binds the driver again. The time in the report is that until the function is complete.
func reset(ctx context.Context, n *node, t *target, took *time.Duration) error {
	before, err := n.custody.Look(t.Ref)
	if err != nil {
		return err
	}
	before.Reset = restore.Always
	began, bound := time.Now(), false
	for deadline := began.Add(patience); ctx.Err() == nil && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var did []string
		did, err = n.custody.Restore(before)
		if slices.Contains(did, restore.Reset) {
			bound, before.Reset = true, restore.Never
		}
		if err == nil {
			break
		}
	}
	*took = time.Since(began)
	if err == nil && !bound {
		err = errors.New("its driver was not bound again")
	}
	return err
}

// vfio binds the function to vfio-pci, as for a virtual machine or DPDK.
func vfio(ctx context.Context, n *node, t *target, add *time.Duration) error {
	before, err := n.custody.Look(t.Ref)
	if err != nil {
		return err
	}
	if err := n.custody.MayBind(before, "vfio-pci"); err != nil {
		return notApplicable(err.Error())
	}
	if err := n.custody.Bind(before, "vfio-pci"); err != nil {
		return err
	}
	if now, _ := os.Readlink("/sys/bus/pci/devices/" + t.PCI + "/driver"); filepath.Base(now) != "vfio-pci" {
		return fmt.Errorf("its driver is %q after it was bound to vfio-pci", filepath.Base(now))
	}
	return alone(ctx, n, t, add)
}
