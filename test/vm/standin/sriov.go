package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const sriovDir = "/var/lib/cni/sriov"

type sriovConf struct {
	common
	Vlan *int `json:"vlan,omitempty"`
}

// sriovCache is the data that DEL needs. It does not record that the VF was on vfio-pci, so DEL looks for an
// interface and fails.
type sriovCache struct {
	Conf sriovConf
	Link string         // the VF's interface
	MTU  int            // its earlier MTU
	VF   netlink.VfInfo // the PF's earlier settings
}

func sriovLockPath(address string) string { return filepath.Join(sriovDir, "pci", address) }

// held reports whether the VF is locked for a network namespace that still exists.
func held(address string) bool {
	netns, err := os.ReadFile(sriovLockPath(address))
	return err == nil && ns.IsNSorErr(string(netns)) == nil
}

func sriovAdd(args *skel.CmdArgs) error {
	var c sriovCache
	if err := parse(args.StdinData, &c.Conf); err != nil {
		return err
	}
	f, err := vf(c.Conf.DeviceID)
	switch {
	case err != nil:
		return err
	case held(c.Conf.DeviceID):
		return fmt.Errorf("pci address %s is already allocated", c.Conf.DeviceID)
	case f.link == "" && f.driver != "vfio-pci":
		return fmt.Errorf("the VF %s has neither an interface nor a DPDK driver", c.Conf.DeviceID)
	}
	if err := c.look(f); err != nil {
		return err
	}
	if err := c.attach(args, f); err != nil {
		return errors.Join(err, c.set(f, c.VF))
	}
	return nil
}

// attach configures the VF, moves it, saves the data for DEL, and prints the result.
func (c *sriovCache) attach(args *skel.CmdArgs, f function) error {
	var to netlink.VfInfo
	if c.Conf.Vlan != nil {
		to.Vlan = *c.Conf.Vlan
	}
	if err := c.set(f, to); err != nil {
		return err
	}
	result, err := c.Conf.move(args, f.link)
	if err != nil {
		return err
	}
	if f.link == "" && slices.ContainsFunc(c.VF.Mac, func(b byte) bool { return b != 0 }) {
		result.Interfaces[0].Mac = c.VF.Mac.String()
	}
	result.Interfaces[0].Mtu = c.MTU
	err = errors.Join(os.MkdirAll(filepath.Join(sriovDir, "pci"), 0o700), save(sriovDir, args, c),
		os.WriteFile(sriovLockPath(c.Conf.DeviceID), []byte(args.Netns), 0o600))
	if err != nil {
		return err
	}
	return types.PrintResult(result, c.Conf.CNIVersion)
}

// look records the VF's settings. If the VF has no MTU it records the PF's.
func (c *sriovCache) look(f function) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE) // the library's default handle does not request VFs
	if err != nil {
		return err
	}
	defer h.Close()
	pf, err := h.LinkByName(f.uplink)
	if err != nil {
		return fmt.Errorf("the PF %s: %w", f.pf, err)
	}
	vfs := pf.Attrs().Vfs
	if at := slices.IndexFunc(vfs, func(v netlink.VfInfo) bool { return v.ID == f.index }); at >= 0 {
		c.VF = vfs[at]
	}
	c.MTU = pf.Attrs().MTU
	if f.link == "" {
		return nil
	}
	link, err := h.LinkByName(f.link)
	if err == nil {
		c.Link, c.MTU = f.link, link.Attrs().MTU
	}
	return err
}

// set sets the VF's VLAN, if the configuration has one, and its MAC, if it is known, with the PF.
func (c *sriovCache) set(f function, to netlink.VfInfo) error {
	pf, err := netlink.LinkByName(f.uplink)
	if err == nil && c.Conf.Vlan != nil {
		err = netlink.LinkSetVfVlanQos(pf, f.index, to.Vlan, to.Qos)
	}
	if err == nil && to.Mac != nil {
		err = netlink.LinkSetVfHardwareAddr(pf, f.index, to.Mac)
	}
	if err != nil {
		return fmt.Errorf("%s: configure VF %d: %w", f.uplink, f.index, err)
	}
	return nil
}

// sriovDel removes the cache even if it fails, so the second DEL does nothing. It also does nothing if the cache
// cannot be read, for example because a power failure emptied it.
func sriovDel(args *skel.CmdArgs) error {
	var c sriovCache
	if load(sriovDir, args, &c) != nil {
		return nil
	}
	return errors.Join(c.del(args), os.Remove(cached(sriovDir, args)))
}

func (c *sriovCache) del(args *skel.CmdArgs) error {
	gone := args.Netns == "" || errors.As(ns.IsNSorErr(args.Netns), new(ns.NSPathNotExistErr))
	link := c.Link
	if gone { // the kernel has moved the VF back
		link = ""
	}
	if err := c.Conf.moveBack(link); err != nil || args.Netns == "" { // the lock names a namespace that no longer exists
		return err
	}
	f, err := vf(c.Conf.DeviceID)
	if err == nil {
		err = c.set(f, c.VF)
	}
	switch {
	case err != nil || gone:
		return err
	case link == "":
		return fmt.Errorf("failed to get netlink device with name %s: Link not found", args.IfName)
	}
	moved, err := netlink.LinkByName(c.Link)
	if err == nil {
		err = netlink.LinkSetMTU(moved, c.MTU)
	}
	return errors.Join(err, os.Remove(sriovLockPath(c.Conf.DeviceID)))
}

func rdmaAdd(args *skel.CmdArgs) error {
	var c common
	if err := parse(args.StdinData, &c); err != nil {
		return err
	}
	mode, err := netlink.RdmaSystemGetNetnsMode()
	switch {
	case c.PrevResult == nil:
		return errors.New("rdma must be called as part of a plugin chain")
	case err != nil || mode != "exclusive":
		return fmt.Errorf("RDMA subsystem namespace awareness mode is %q (%w), not exclusive", mode, err)
	case sys() == "/sys":
		return errors.New("the stand-in cannot move an RDMA device of the kernel: it has STANDIN_SYS for that")
	}
	dir := pciDir(c.DeviceID)
	if err := os.Rename(dir+"/infiniband", dir+"/moved"); err != nil {
		return fmt.Errorf("failed to get RDMA devices for PCI device %s: %w", c.DeviceID, err)
	}
	return json.NewEncoder(os.Stdout).Encode(c.PrevResult)
}

// rdmaDel does nothing if the network namespace no longer exists, because the kernel has moved the device back.
func rdmaDel(args *skel.CmdArgs) error {
	var c common
	if err := parse(args.StdinData, &c); err != nil || args.Netns == "" {
		return err
	}
	dir := pciDir(c.DeviceID)
	if err := os.Rename(dir+"/moved", dir+"/infiniband"); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
