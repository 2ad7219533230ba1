package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// sys is where the plugins find /sys.
func sys() string {
	if dir := os.Getenv("STANDIN_SYS"); dir != "" {
		return dir
	}
	return "/sys"
}

// A function is a VF, as /sys shows it.
type function struct {
	dir    string // of the VF
	pf     string // address
	index  int
	link   string // the VF's interface; "" if it has none
	driver string // "" if it has none
}

func pciDir(address string) string { return filepath.Join(sys(), "bus/pci/devices", address) }

// vf looks a VF up.
func vf(address string) (f function, err error) {
	if address == "" {
		return f, errors.New("there is no deviceID: the address of a VF is required")
	}
	f.dir = pciDir(address)
	physfn, err := filepath.EvalSymlinks(filepath.Join(f.dir, "physfn"))
	if err != nil {
		return f, fmt.Errorf("%s is no VF: %w", address, err)
	}
	f.pf, f.index = filepath.Base(physfn), -1
	virtfns, _ := filepath.Glob(filepath.Join(physfn, "virtfn*"))
	for _, v := range virtfns {
		if target, err := os.Readlink(v); err == nil && filepath.Base(target) == address {
			f.index, err = strconv.Atoi(strings.TrimPrefix(filepath.Base(v), "virtfn"))
			if err != nil {
				return f, err
			}
		}
	}
	if f.index < 0 {
		return f, fmt.Errorf("%s: not among the VFs of %s", address, f.pf)
	}
	if driver, err := os.Readlink(filepath.Join(f.dir, "driver")); err == nil {
		f.driver = filepath.Base(driver)
	}
	f.link, err = only(filepath.Join(f.dir, "net"))
	return f, err
}

// only is the one entry of a directory; "" if it is not there or empty.
func only(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0:
		return "", nil
	case err != nil:
		return "", err
	case len(entries) > 1:
		return "", fmt.Errorf("%s has %d entries", dir, len(entries))
	}
	return entries[0].Name(), nil
}

// userspace says that a VF is for a program of its own, such as DPDK.
func (f function) userspace() bool {
	return f.driver == "vfio-pci" || f.driver == "uio_pci_generic" || f.driver == "igb_uio"
}

// uplink is the interface of the PF.
func (f function) uplink() (netlink.Link, error) {
	name, err := only(filepath.Join(pciDir(f.pf), "net"))
	if err == nil && name == "" {
		err = fmt.Errorf("%s, the PF, has no interface in its directory net", f.pf)
	}
	if err != nil {
		return nil, err
	}
	return netlink.LinkByName(name)
}

// representor asks devlink for the interface that represents the VF in the PF's switch.
func (f function) representor() (netlink.Link, error) {
	handle := os.Getenv("STANDIN_SWITCH")
	if handle == "" {
		handle = "pci/" + f.pf
	}
	ports, err := netlink.DevLinkGetAllPortList()
	if err != nil {
		return nil, err
	}
	for _, p := range ports {
		if p.BusName+"/"+p.DeviceName == handle && p.PortFlavour == nl.DEVLINK_PORT_FLAVOUR_PCI_VF && p.VfNumber != nil && int(*p.VfNumber) == f.index {
			return netlink.LinkByName(p.NetdeviceName)
		}
	}
	return nil, fmt.Errorf("%s has no representor of VF %d", handle, f.index)
}

// inNetns calls f in a network namespace.
func inNetns(path string, f func() error) error {
	return ns.WithNetNSPath(path, func(ns.NetNS) error { return f() })
}

// move takes an interface into the network namespace, under another name.
func move(link netlink.Link, netns, name string) error {
	to, err := ns.GetNS(netns)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := netlink.LinkSetDown(link); err != nil {
		return err
	}
	// A name that neither namespace has.
	if err := netlink.LinkSetName(link, fmt.Sprintf("temp_%d", link.Attrs().Index)); err != nil {
		return err
	}
	if err := netlink.LinkSetNsFd(link, int(to.Fd())); err != nil {
		return err
	}
	return to.Do(func(ns.NetNS) error {
		if err := netlink.LinkSetName(link, name); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

// moveBack takes an interface out of the network namespace. Before, change puts right what
// is to be as it was.
func moveBack(netns, name, before string, change func(netlink.Link) error) error {
	here, err := ns.GetCurrentNS()
	if err != nil {
		return err
	}
	defer here.Close()
	return inNetns(netns, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("failed to get netlink device with name %s: %w", name, err)
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return err
		}
		if err := netlink.LinkSetName(link, before); err != nil {
			return err
		}
		if err := change(link); err != nil {
			return err
		}
		return netlink.LinkSetNsFd(link, int(here.Fd()))
	})
}
