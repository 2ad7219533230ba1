// Package link asks the kernel about network interfaces, vDPA devices and eswitches. It is
// the only door to netlink and devlink, and asks for one thing by its name; the only list
// that an attachment ever costs is that of one PF's devlink ports. Recorder lists
// everything, for people.
//
// It needs no privilege in our own network namespace, except for the eswitch mode, which
// devlink tells only CAP_NET_ADMIN. Entering another namespace takes CAP_SYS_ADMIN there
// and here.
//
// What sysfs shows alike in every namespace comes from package sysfs. Package linkhost
// answers for hosts other than this machine.
package link

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
)

var (
	// ErrNoInterface says that the namespace has no interface of that name.
	ErrNoInterface = errors.New("no such network interface")
	// ErrNoNetns says that a path is absent, or not a network namespace.
	ErrNoNetns = errors.New("no such network namespace")
)

// Interface is one network interface as the kernel describes it.
type Interface struct {
	Name    string           // IFLA_IFNAME: also where an alternative name was asked for
	Index   int              // unique in its network namespace only
	Kind    string           // IFLA_INFO_KIND: "macvlan", "vlan", "veth"; "" for hardware and lo
	MAC     net.HardwareAddr // IFLA_ADDRESS; nil for an interface without
	MTU     int              // IFLA_MTU, in bytes
	Bus     string           // IFLA_PARENT_DEV_BUS_NAME (Linux 5.14): "pci", "virtio", "auxiliary"; "" without parent
	Parent  string           // IFLA_PARENT_DEV_NAME (Linux 5.14): "0000:01:00.2", "virtio2", "mlx5_core.sf.4"
	BusInfo string           // ETHTOOL_GDRVINFO's bus_info, if Parent is empty or on Bus "virtio": as the driver likes, such as "N/A", "tap" or "vdpa0"
	Lower   *Interface       // what a Stacked interface is on; nil where the kernel does not tell

	PortName string // IFLA_PHYS_PORT_NAME: "p0", "pf0vf3", "2"; "" where the driver tells none
	Child    bool   // of another IPoIB interface, which IFLA_LINK names (drivers/infiniband/ulp/ipoib, ipoib_get_iflink)
}

// Stacked says that the interface is another's traffic under a name and
// address of its own. That other is its Lower.
func (i Interface) Stacked() bool {
	return slices.Contains([]string{"macvlan", "macvtap", "ipvlan", "ipvtap", "vlan"}, i.Kind)
}

// Borrows reports that the interface names a device that is not its own: a representor
// names the PF, an IPoIB child its parent's device, and other software on a device may give
// that device's bus_info.
func (i Interface) Borrows() bool {
	return i.Child || Represents(i.PortName) || i.Kind != "" && i.Parent == ""
}

// Represents reports whether a port name is a representor's: "pf0vf3" or "pf0sf88"; for the
// host that a DPU sits in, "c1pf0vf3" (net/devlink/port.c); for sfc "p0pf0vf3"; for mlx5
// until Linux 4.20, a number. An uplink's is "p0", a split port's "p0s1".
func Represents(portName string) bool {
	return strings.Contains(portName, "pf") || portName != "" && strings.Trim(portName, "0123456789") == ""
}

// IPoIBChild reports whether an interface of that kind, linked to another one by IFLA_LINK,
// is an IPoIB child: nothing else without a kind is linked. In another network namespace
// than its parent's it may happen to have the parent's index; then the kernel leaves
// IFLA_LINK out, and only the missing parent device shows what it is.
func IPoIBChild(kind string, linked bool) bool {
	return linked && (kind == "" || kind == "ipoib") // "" until Linux 5.13
}

// Flavour is what kind of function a representor stands for.
type Flavour int

// The flavours, and what numbers them.
const (
	VF Flavour = iota // the VF's index on its PF
	SF                // the user's number, sfnum
)

// Kernel answers for the machine the program runs on.
type Kernel struct{ Eswitch }

// NewKernel takes the tree below /sys, as the host has it mounted. It asks
// nothing yet.
func NewKernel(sys fs.FS) *Kernel {
	return &Kernel{Eswitch{
		Sys:   sys,
		Mode:  func(pf string) (string, error) { return Handle{"pci", pf}.EswitchMode() },
		Ports: func(pf string) ([]*netlink.DevlinkPort, error) { return Handle{"pci", pf}.Ports() },
	}}
}

// Interface describes the interface of that name in the network namespace at
// the path netns, "" being our own. The errors are ErrNoNetns, ErrNoInterface
// and the kernel's.
//
// Lower is found in whatever namespace it is. In one that is neither netns nor
// our own that takes CAP_NET_ADMIN there and Linux 4.15; else Lower stays nil.
func (k *Kernel) Interface(netns, name string) (Interface, error) {
	i, err := find(netns, name)
	if err != nil && netns != "" {
		err = fmt.Errorf("interface %q in %s: %w", name, netns, err)
	} else if err != nil {
		err = fmt.Errorf("interface %q: %w", name, err)
	}
	return i, err
}

// VDPAMAC is the MAC address in the configuration of a vDPA network device; ok is false if
// the kernel has no such device or no vDPA, or if the address is missing or zero.
func (k *Kernel) VDPAMAC(name string) (mac net.HardwareAddr, ok bool, err error) {
	config, err := patiently(func() (*netlink.VDPADevConfig, error) { return netlink.VDPAGetDevConfigByName(name) })
	if absent(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("vdpa device %s: read configuration: %w", name, err)
	}
	for _, b := range config.Net.Cfg.MACAddr {
		if b != 0 {
			return config.Net.Cfg.MACAddr, true, nil
		}
	}
	return nil, false, nil
}

// absent decides which errors mean that a thing is not there, as opposed to
// broken: no such file, device or generic netlink family, or a kernel or driver
// that does not know the question.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EINVAL) ||
		errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EPROTONOSUPPORT)
}
