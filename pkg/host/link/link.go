// Package link looks network interfaces, vDPA devices and eswitches up in the kernel, and enters network namespaces. It
// requests single objects by name; only the devlink ports of a PF are a list. Package listing lists all objects, and
// package settings reads and changes what a pod can set.
//
// The package needs no privilege in its own network namespace, except CAP_NET_ADMIN for the eswitch mode. Entering
// another network namespace needs CAP_SYS_ADMIN in both.
package link

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/rtnetlink"
)

var (
	// ErrNoInterface is the error for an interface that does not exist in the network namespace.
	ErrNoInterface = rtnetlink.ErrNoInterface
	// ErrNoNetns is the error for a path that does not exist or is not a network namespace.
	ErrNoNetns = errors.New("no such network namespace")
)

// Interface is a network interface. The comments name the netlink attributes of the fields.
type Interface struct {
	Name    string           // IFLA_IFNAME, even if the request had an altname
	Index   int              // unique in its network namespace only
	Kind    string           // IFLA_INFO_KIND: "macvlan", "vlan", "veth"; "" for hardware and lo
	MAC     net.HardwareAddr // IFLA_ADDRESS; nil = none
	PermMAC net.HardwareAddr // IFLA_PERM_ADDRESS (Linux 5.6); nil = none
	MTU     int              // IFLA_MTU, in bytes
	Bus     string           // IFLA_PARENT_DEV_BUS_NAME (Linux 5.14): "pci", "virtio", "auxiliary"; "" without parent
	Parent  string           // IFLA_PARENT_DEV_NAME (Linux 5.14): "0000:01:00.2", "virtio2", "mlx5_core.sf.4"
	BusInfo string           // ETHTOOL_GDRVINFO's bus_info if Parent is "" or Bus is "virtio"; its content depends on the driver: "N/A", "tap", "vdpa0"
	Lower   *Interface       // lower interface of a Stacked interface; nil if the kernel does not report it

	PortName string // IFLA_PHYS_PORT_NAME: "p0", "pf0vf3", "2"; "" if the driver has none
	Child    bool   // true for a child of the IPoIB interface in IFLA_LINK (drivers/infiniband/ulp/ipoib, ipoib_get_iflink)
}

// Stacked reports whether the interface shares its Lower interface's device, with its own name and address.
func (i Interface) Stacked() bool {
	return slices.Contains([]string{"macvlan", "macvtap", "ipvlan", "ipvtap", "vlan"}, i.Kind)
}

// Borrows reports whether the interface may name a device that it does not belong to: a representor names the PF, an
// IPoIB child names its parent's device, and a software interface may return the bus_info of a device below it.
func (i Interface) Borrows() bool {
	return i.Child || Represents(i.PortName) || i.Kind != "" && i.Parent == ""
}

// Represents reports whether a port name, phys_port_name, belongs to a representor.
func Represents(portName string) bool { return parsePortName(portName).represents }

// IPoIBChild reports whether an interface is an IPoIB child. kind is its IFLA_INFO_KIND. linked is true if IFLA_LINK
// names another interface. If the child has the same index as its parent in another network namespace, the kernel
// omits IFLA_LINK and IPoIBChild returns false.
func IPoIBChild(kind string, linked bool) bool {
	return linked && (kind == "" || kind == "ipoib") // "" until Linux 5.13
}

// Flavour is the kind of function that a representor represents.
type Flavour int

// The flavours, with the meaning of their numbers.
const (
	VF Flavour = iota // index of the VF on its PF
	SF                // sfnum, chosen by the user
)

// Kernel reads the kernel of this machine.
type Kernel struct{ Eswitch }

// NewKernel returns a Kernel. sys is the tree below the host's /sys.
func NewKernel(sys fs.FS) *Kernel {
	return &Kernel{Eswitch{
		Sys:   sys,
		Mode:  func(pf string) (string, error) { return Handle{"pci", pf}.EswitchMode() },
		Ports: func(pf string) ([]PortRecord, error) { return Handle{"pci", pf}.Ports() },
	}}
}

// Interface returns an interface by name. netns is the path of its network namespace, or "" for the current one. The
// error is ErrNoNetns, ErrNoInterface or an error of the kernel.
//
// Lower may be in a different network namespace. For a network namespace except netns and the current one, the request
// needs CAP_NET_ADMIN in it and Linux 4.15; without them Lower is nil.
func (k *Kernel) Interface(netns, name string) (_ Interface, err error) {
	defer func() {
		if err != nil && netns != "" {
			err = fmt.Errorf("interface %q in %s: %w", name, netns, err)
		} else if err != nil {
			err = fmt.Errorf("interface %q: %w", name, err)
		}
	}()
	attribute := unix.IFLA_IFNAME // also finds short altnames (Linux 5.5)
	if len(name) >= unix.IFNAMSIZ {
		attribute = unix.IFLA_ALT_IFNAME
	}
	if len(name) >= maxAltName {
		return Interface{}, ErrNoInterface // invalid name
	}
	c, err := dial(netns)
	if err != nil {
		return Interface{}, err
	}
	defer c.Close()
	l, err := c.Get(rtnetlink.Local, 0, rtnetlink.SkipStats, nl.NewRtAttr(attribute, nl.ZeroTerminated(name)))
	switch {
	case errors.Is(err, ErrNoInterface), attribute == unix.IFLA_ALT_IFNAME && errors.Is(err, syscall.EINVAL): // before Linux 5.5
		return Interface{}, ErrNoInterface
	case err != nil:
		return Interface{}, fmt.Errorf("read from rtnetlink: %w", err)
	}
	return describe(c, l, maxDepth)
}

// WithMAC returns the names of the interfaces in the current network namespace that have a hardware address. It lists all
// interfaces.
func (k *Kernel) WithMAC(mac net.HardwareAddr) (names []string, err error) {
	c := rtnetlink.Dial()
	defer c.Close()
	list, err := c.Links(rtnetlink.SkipStats)
	for _, l := range list {
		if bytes.Equal(l.MAC, mac) {
			names = append(names, l.Name)
		}
	}
	return names, err
}

// VDPAMAC returns the MAC address in the configuration of a vDPA network device. ok is false if the device does not
// exist, the kernel has no vDPA, or the address is missing or zero.
func (k *Kernel) VDPAMAC(name string) (mac net.HardwareAddr, ok bool, err error) {
	config, err := rtnetlink.Retry(func() (*netlink.VDPADevConfig, error) { return netlink.VDPAGetDevConfigByName(name) })
	if rtnetlink.Absent(err) {
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
