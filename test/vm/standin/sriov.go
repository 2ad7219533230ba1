package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const sriovDir = "/var/lib/cni/sriov"

type sriovConf struct {
	common
	Vlan     *int   `json:"vlan,omitempty"`
	VlanQoS  int    `json:"vlanQoS,omitempty"`
	MAC      string `json:"mac,omitempty"`
	SpoofChk string `json:"spoofchk,omitempty"` // on, off
	Trust    string `json:"trust,omitempty"`    // on, off
	MinRate  *int   `json:"min_tx_rate,omitempty"`
	MaxRate  *int   `json:"max_tx_rate,omitempty"`
}

// sriovCache is what DEL goes by. That the VF was on vfio-pci is not in it: hence DEL looks
// for an interface, and fails.
type sriovCache struct {
	Conf sriovConf
	Link string // the VF's interface, and what it had
	MAC  string
	MTU  int
	VF   netlink.VfInfo // what the PF had of it
}

func sriovCachePath(args *skel.CmdArgs) string {
	return filepath.Join(sriovDir, args.ContainerID+"-"+args.IfName)
}

func sriovLockPath(address string) string { return filepath.Join(sriovDir, "pci", address) }

// held says that the VF is in a network namespace that is still there.
func held(address string) bool {
	netns, err := os.ReadFile(sriovLockPath(address))
	return err == nil && ns.IsNSorErr(string(netns)) == nil
}

func sriovAdd(args *skel.CmdArgs) error {
	var c sriovCache
	if err := parse(args.StdinData, &c.Conf); err != nil {
		return err
	}
	if mac := c.Conf.runtime("mac"); mac != "" {
		c.Conf.MAC = mac
	}
	f, err := vf(c.Conf.DeviceID)
	switch {
	case err != nil:
		return err
	case held(c.Conf.DeviceID):
		return fmt.Errorf("pci address %s is already allocated", c.Conf.DeviceID)
	case f.link == "" && !f.userspace():
		return fmt.Errorf("the VF %s has neither an interface nor a DPDK driver", c.Conf.DeviceID)
	}
	mtu, err := c.look(f)
	if err != nil {
		return err
	}
	result := &current.Result{Interfaces: []*current.Interface{{Name: args.IfName, Mac: c.mac(f), Sandbox: args.Netns, Mtu: mtu}}}
	if err := c.attach(args, f, result); err != nil {
		return errors.Join(err, c.undo(args, f))
	}
	return c.Conf.print(result)
}

// attach configures the VF, moves it, adds addresses to the result, and keeps what DEL needs.
func (c *sriovCache) attach(args *skel.CmdArgs, f function, result *current.Result) error {
	if err := c.configure(f); err != nil {
		return err
	}
	if f.link != "" {
		if err := c.intoPod(args, f); err != nil {
			return err
		}
	}
	if err := c.Conf.addresses(args, result, 0, f.link != ""); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(sriovDir, "pci"), 0o700); err != nil {
		return err
	}
	if err := save(sriovCachePath(args), c); err != nil {
		return err
	}
	return os.WriteFile(sriovLockPath(c.Conf.DeviceID), []byte(args.Netns), 0o600)
}

// look notes what the VF has, and gives its MTU, which is the PF's where it has none.
func (c *sriovCache) look(f function) (mtu int, err error) {
	pf, err := f.uplink()
	if err != nil {
		return 0, err
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE) // the library's own does not ask for VFs
	if err != nil {
		return 0, err
	}
	defer h.Close()
	if pf, err = h.LinkByName(pf.Attrs().Name); err != nil {
		return 0, err
	}
	vfs := pf.Attrs().Vfs
	if at := slices.IndexFunc(vfs, func(v netlink.VfInfo) bool { return v.ID == f.index }); at >= 0 {
		c.VF = vfs[at]
	}
	if f.link == "" {
		return pf.Attrs().MTU, nil
	}
	link, err := netlink.LinkByName(f.link)
	if err != nil {
		return 0, err
	}
	c.Link, c.MAC, c.MTU = f.link, link.Attrs().HardwareAddr.String(), link.Attrs().MTU
	return c.MTU, nil
}

// mac is the one that the result tells.
func (c *sriovCache) mac(f function) string {
	switch {
	case c.Conf.MAC != "":
		return c.Conf.MAC
	case f.link != "":
		return c.MAC
	case slices.ContainsFunc(c.VF.Mac, func(b byte) bool { return b != 0 }):
		return c.VF.Mac.String()
	}
	return ""
}

// configure sets what the configuration says of the VF, by the PF.
func (c *sriovCache) configure(f function) error {
	var mac net.HardwareAddr
	if c.Conf.MAC != "" {
		var err error
		if mac, err = net.ParseMAC(c.Conf.MAC); err != nil {
			return err
		}
	}
	return c.set(f, netlink.VfInfo{Mac: mac, Vlan: number(c.Conf.Vlan), Qos: c.Conf.VlanQoS, Spoofchk: c.Conf.SpoofChk == "on",
		Trust: map[bool]uint32{true: 1}[c.Conf.Trust == "on"], MinTxRate: uint32(number(c.Conf.MinRate)), MaxTxRate: uint32(number(c.Conf.MaxRate))})
}

func number(set *int) int {
	if set == nil {
		return 0
	}
	return *set
}

// reset sets what the VF had of that which the configuration says, and its MAC in any case.
func (c *sriovCache) reset(f function) error { return c.set(f, c.VF) }

func (c *sriovCache) set(f function, to netlink.VfInfo) error {
	pf, err := f.uplink()
	if err != nil {
		return err
	}
	if c.Conf.Vlan != nil {
		err = netlink.LinkSetVfVlanQos(pf, f.index, to.Vlan, to.Qos)
	}
	if err == nil && to.Mac != nil {
		err = netlink.LinkSetVfHardwareAddr(pf, f.index, to.Mac)
	}
	if err == nil && c.Conf.SpoofChk != "" {
		err = netlink.LinkSetVfSpoofchk(pf, f.index, to.Spoofchk)
	}
	if err == nil && c.Conf.Trust != "" {
		err = netlink.LinkSetVfTrust(pf, f.index, to.Trust == 1)
	}
	if err == nil && (c.Conf.MinRate != nil || c.Conf.MaxRate != nil) {
		err = netlink.LinkSetVfRate(pf, f.index, int(to.MinTxRate), int(to.MaxTxRate))
	}
	if err != nil {
		return fmt.Errorf("%s: configure VF %d: %w", pf.Attrs().Name, f.index, err)
	}
	return nil
}

func (c *sriovCache) intoPod(args *skel.CmdArgs, f function) error {
	link, err := netlink.LinkByName(f.link)
	if err != nil {
		return err
	}
	if c.Conf.MAC != "" {
		mac, err := net.ParseMAC(c.Conf.MAC)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetHardwareAddr(link, mac); err != nil {
			return err
		}
	}
	return move(link, args.Netns, args.IfName)
}

// outOfPod gives the interface back with the name, MAC and MTU that it had.
func (c *sriovCache) outOfPod(args *skel.CmdArgs) error {
	return moveBack(args.Netns, args.IfName, c.Link, func(link netlink.Link) error {
		if c.Conf.MAC != "" {
			mac, err := net.ParseMAC(c.MAC)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetHardwareAddr(link, mac); err != nil {
				return err
			}
		}
		return netlink.LinkSetMTU(link, c.MTU)
	})
}

// undo is for an ADD that fails.
func (c *sriovCache) undo(args *skel.CmdArgs, f function) error {
	err := c.Conf.noAddresses(args)
	if now, e := vf(c.Conf.DeviceID); e == nil && now.link == "" && f.link != "" {
		err = errors.Join(err, c.outOfPod(args))
	}
	return errors.Join(err, c.reset(f))
}

// sriovDel forgets the attachment whether it fails or not: the second DEL does nothing. Nor does one
// of a cache that cannot be read: after a power failure it may be empty.
func sriovDel(args *skel.CmdArgs) error {
	var c sriovCache
	if load(sriovCachePath(args), &c) != nil {
		return nil
	}
	return errors.Join(c.del(args), os.Remove(sriovCachePath(args)))
}

func (c *sriovCache) del(args *skel.CmdArgs) error {
	if err := c.Conf.noAddresses(args); err != nil {
		return err
	}
	if args.Netns == "" { // the kernel has put the VF back; the lock names a namespace that is gone
		return nil
	}
	f, err := vf(c.Conf.DeviceID)
	if err != nil {
		return fmt.Errorf("error obtaining VF ID: %w", err)
	}
	if err := c.reset(f); err != nil {
		return err
	}
	var gone ns.NSPathNotExistErr
	if err := ns.IsNSorErr(args.Netns); errors.As(err, &gone) {
		return nil
	}
	if err := c.outOfPod(args); err != nil {
		return err
	}
	return os.Remove(sriovLockPath(c.Conf.DeviceID))
}
