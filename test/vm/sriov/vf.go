package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const functions = "/sys/bus/pci/devices"

// vf is a virtual function of this node.
type vf struct {
	pf     string // interface of its PF
	number int
	ifName string // on the host; "" = it has none
	user   bool   // its driver is for user space
}

// state is what DEL restores.
type state struct {
	IfName, MAC string // "" = it had no interface
	MTU         int
	AdminMAC    string // that the PF has for it
	VLAN        int
}

// find looks a VF up by its address.
func find(address string) (*vf, error) {
	dir := filepath.Join(functions, address)
	pfs, _ := filepath.Glob(dir + "/physfn/net/*")
	if len(pfs) == 0 {
		return nil, fmt.Errorf("%s: no VF whose PF has an interface", address)
	}
	v := &vf{pf: filepath.Base(pfs[0]), number: -1}
	links, _ := filepath.Glob(dir + "/physfn/virtfn*")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && filepath.Base(target) == address {
			v.number, _ = strconv.Atoi(strings.TrimPrefix(filepath.Base(link), "virtfn"))
		}
	}
	if v.number < 0 {
		return nil, fmt.Errorf("%s: it is no VF of %s", address, v.pf)
	}
	if nets, _ := filepath.Glob(dir + "/net/*"); len(nets) > 0 {
		v.ifName = filepath.Base(nets[0])
	}
	driver, _ := os.Readlink(dir + "/driver")
	v.user = slices.Contains([]string{"vfio-pci", "uio_pci_generic", "igb_uio"}, filepath.Base(driver))
	return v, nil
}

// state is that of the VF before ADD.
func (v *vf) state() (s state, err error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE) // netlink.LinkByName does not ask for VFs
	if err != nil {
		return s, err
	}
	defer h.Close()
	pf, err := h.LinkByName(v.pf)
	if err != nil {
		return s, fmt.Errorf("PF %s: %w", v.pf, err)
	}
	at := slices.IndexFunc(pf.Attrs().Vfs, func(i netlink.VfInfo) bool { return i.ID == v.number })
	if at < 0 {
		return s, fmt.Errorf("PF %s: no VF %d", v.pf, v.number)
	}
	s.AdminMAC, s.VLAN = pf.Attrs().Vfs[at].Mac.String(), pf.Attrs().Vfs[at].Vlan
	if v.ifName == "" {
		if !v.user {
			return s, fmt.Errorf("VF %d of %s has neither an interface nor a driver for user space", v.number, v.pf)
		}
		return s, nil
	}
	link, err := netlink.LinkByName(v.ifName)
	if err != nil {
		return s, fmt.Errorf("VF %s: %w", v.ifName, err)
	}
	s.IfName, s.MAC, s.MTU = v.ifName, link.Attrs().HardwareAddr.String(), link.Attrs().MTU
	return s, nil
}

// configure sets what the PF has of the VF.
func (v *vf) configure(vlan *int, mac string) error {
	pf, err := netlink.LinkByName(v.pf)
	if err != nil {
		return err
	}
	if vlan != nil {
		if err := netlink.LinkSetVfVlan(pf, v.number, *vlan); err != nil {
			return fmt.Errorf("VLAN of VF %d of %s: %w", v.number, v.pf, err)
		}
	}
	return v.setAdminMAC(pf, mac)
}

func (v *vf) setAdminMAC(pf netlink.Link, mac string) error {
	if mac == "" {
		return nil
	}
	address, err := net.ParseMAC(mac)
	if err == nil {
		err = netlink.LinkSetVfHardwareAddr(pf, v.number, address)
	}
	if err != nil {
		return fmt.Errorf("MAC of VF %d of %s: %w", v.number, v.pf, err)
	}
	return nil
}

// reset restores what the PF has of the VF.
func (v *vf) reset(was state, vlan bool) error {
	pf, err := netlink.LinkByName(v.pf)
	if err != nil {
		return err
	}
	if vlan {
		err = netlink.LinkSetVfVlan(pf, v.number, was.VLAN)
	}
	return errors.Join(err, v.setAdminMAC(pf, was.AdminMAC))
}

// move brings the interface into the network namespace, if there is one.
func (v *vf) move(to ns.NetNS, ifName, mac string) error {
	if v.ifName == "" {
		return nil
	}
	link, err := netlink.LinkByName(v.ifName)
	if err != nil {
		return fmt.Errorf("VF %s: %w", v.ifName, err)
	}
	steps := []func() error{
		func() error { return netlink.LinkSetDown(link) },
		func() error { return netlink.LinkSetName(link, fmt.Sprintf("temp_%d", link.Attrs().Index)) },
		func() error { return setMAC(link, mac) },
		func() error { return netlink.LinkSetNsFd(link, int(to.Fd())) },
		func() error {
			return to.Do(func(ns.NetNS) error { return errors.Join(netlink.LinkSetName(link, ifName), netlink.LinkSetUp(link)) })
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("VF %s into %s as %s: %w", v.ifName, to.Path(), ifName, err)
		}
	}
	return nil
}

func setMAC(link netlink.Link, mac string) error {
	if mac == "" || mac == link.Attrs().HardwareAddr.String() {
		return nil
	}
	address, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	return netlink.LinkSetHardwareAddr(link, address)
}

// release brings the interface back as it was.
func (v *vf) release(from ns.NetNS, ifName string, was state) error {
	host, err := ns.GetCurrentNS()
	if err != nil {
		return err
	}
	defer host.Close()
	return from.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByName(ifName)
		if err != nil {
			return fmt.Errorf("failed to get netlink device %s: %w", ifName, err)
		}
		for _, step := range []func() error{
			func() error { return netlink.LinkSetDown(link) },
			func() error { return netlink.LinkSetName(link, was.IfName) },
			func() error { return setMAC(link, was.MAC) },
			func() error { return netlink.LinkSetMTU(link, was.MTU) },
			func() error { return netlink.LinkSetNsFd(link, int(host.Fd())) },
		} {
			if err := step(); err != nil {
				return fmt.Errorf("%s back to %s: %w", ifName, was.IfName, err)
			}
		}
		return nil
	})
}

// giveBack undoes a move that has failed.
func (v *vf) giveBack(from ns.NetNS, ifName string, was state) error {
	there := from.Do(func(ns.NetNS) error {
		_, err := netlink.LinkByName(ifName)
		return err
	})
	if there != nil {
		return nil
	}
	return v.release(from, ifName, was)
}
