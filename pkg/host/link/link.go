// Package link reads network interfaces, vDPA devices and eswitches from the kernel. No other package uses netlink
// or devlink. [Kernel] requests single objects by name; only the devlink ports of a PF are a list. [Recorder] lists
// all objects, for programs that examine a node.
//
// The package needs no privilege in its own network namespace, except CAP_NET_ADMIN for the eswitch mode. Entering
// another network namespace needs CAP_SYS_ADMIN in both.
package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"net"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

var (
	// ErrNoInterface is the error for an interface that does not exist in the network namespace.
	ErrNoInterface = errors.New("no such network interface")
	// ErrNoNetns is the error for a path that does not exist or is not a network namespace.
	ErrNoNetns = errors.New("no such network namespace")
)

// Interface is a network interface. The comments name the netlink attributes of the fields.
type Interface struct {
	Name    string           // IFLA_IFNAME, even if the request had an altname
	Index   int              // unique in its network namespace only
	Kind    string           // IFLA_INFO_KIND: "macvlan", "vlan", "veth"; "" for hardware and lo
	MAC     net.HardwareAddr // IFLA_ADDRESS; nil = none
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
	if name == "" || len(name) >= maxAltName {
		return Interface{}, ErrNoInterface // invalid name
	}
	r, err := dial(netns)
	if err != nil {
		return Interface{}, err
	}
	defer r.socket.Close()
	f, err := r.get(local, 0, nl.NewRtAttr(attribute, nl.ZeroTerminated(name)))
	if errors.Is(err, syscall.ENODEV) || attribute == unix.IFLA_ALT_IFNAME && errors.Is(err, syscall.EINVAL) { // EINVAL before Linux 5.5
		return Interface{}, ErrNoInterface
	}
	if err != nil {
		return Interface{}, fmt.Errorf("read from rtnetlink: %w", err)
	}
	return r.describe(f, maxDepth)
}

// WithMAC returns the names of the interfaces in the current network namespace that have a hardware address. It lists all
// interfaces.
func (k *Kernel) WithMAC(mac net.HardwareAddr) (names []string, err error) {
	r, err := dial("")
	if err != nil {
		return nil, err
	}
	defer r.socket.Close()
	answers, err := r.links(unix.NLM_F_DUMP, 0, rtextFilterSkipStats)
	for _, answer := range answers {
		if f, err := parse(answer, local); err != nil {
			return nil, fmt.Errorf("list interfaces: %w", err)
		} else if bytes.Equal(f.MAC, mac) {
			names = append(names, f.Name)
		}
	}
	return names, err
}

// VDPAMAC returns the MAC address in the configuration of a vDPA network device. ok is false if the device does not
// exist, the kernel has no vDPA, or the address is missing or zero.
func (k *Kernel) VDPAMAC(name string) (mac net.HardwareAddr, ok bool, err error) {
	config, err := retryInterrupted(func() (*netlink.VDPADevConfig, error) { return netlink.VDPAGetDevConfigByName(name) })
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

// absent reports whether an error means that an object does not exist: no such file, device or generic netlink
// family, or a request that the kernel or driver does not support.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EINVAL) ||
		errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EPROTONOSUPPORT)
}

// An attribute is part of a netlink message (struct nlattr in linux/netlink.h).
type attribute struct {
	kind  uint16 // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
	value []byte // part of the message's memory
	raw   []byte // the attribute with its header
}

// attributes parses the attributes after the header of a message. Use header 0 for nested attributes. The error
// wraps EBADMSG. The library returns EINVAL in this case, which also means that the kernel does not support a
// request, so a broken answer would look like a missing feature.
func attributes(message []byte, header int) (list []attribute, err error) {
	if len(message) < header {
		return nil, fmt.Errorf("netlink message of %d bytes: %w", len(message), syscall.EBADMSG)
	}
	list = make([]attribute, 0, len(message)/24) // of a usual size
	for rest := message[header:]; len(rest) > 0; {
		if len(rest) < unix.SizeofRtAttr {
			return nil, fmt.Errorf("%d bytes after the last netlink attribute: %w", len(rest), syscall.EBADMSG)
		}
		size, kind := int(binary.NativeEndian.Uint16(rest)), binary.NativeEndian.Uint16(rest[2:])&nl.NLA_TYPE_MASK
		if size < unix.SizeofRtAttr || size > len(rest) {
			return nil, fmt.Errorf("netlink attribute %d has %d bytes, of %d: %w", kind, size, len(rest), syscall.EBADMSG)
		}
		list = append(list, attribute{kind, rest[unix.SizeofRtAttr:size], rest[:size]})
		rest = rest[min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(rest)):]
	}
	return list, nil
}

func (a attribute) text() string { return unix.ByteSliceToString(a.value) }

func (a attribute) integer() (int, error) {
	n, err := number[uint32](a)
	return int(int32(n)), err
}

// number returns the value of an unsigned attribute, or an error if its size is different. It does not use
// binary.Decode, which adds 20 KB of reflection to the executable.
func number[T uint8 | uint16 | uint32](a attribute) (n T, err error) {
	if 8*len(a.value) != bits.Len32(uint32(^n)) {
		return 0, fmt.Errorf("netlink attribute %d has %d bytes of value: %w", a.kind, len(a.value), syscall.EBADMSG)
	}
	switch len(a.value) {
	case 1:
		n = T(a.value[0])
	case 2:
		n = T(binary.NativeEndian.Uint16(a.value))
	default:
		n = T(binary.NativeEndian.Uint32(a.value))
	}
	return n, nil
}

// maxTries is the number of requests before retryInterrupted returns EINTR.
const maxTries = 4

// retryInterrupted calls request again while it returns EINTR. The library returns EINTR if a signal interrupts the
// answer, or if the list changes during a dump (NLM_F_DUMP_INTR).
func retryInterrupted[T any](request func() (T, error)) (answer T, err error) {
	for range maxTries {
		if answer, err = request(); !errors.Is(err, syscall.EINTR) {
			return answer, err
		}
	}
	return answer, fmt.Errorf("interrupted %d times: %w", maxTries, err)
}

// SetAltName adds or removes an altname of an interface in the current network namespace. It needs CAP_NET_ADMIN.
func (k *Kernel) SetAltName(i Interface, altName string, present bool) error {
	set := netlink.LinkDelAltName
	if present {
		set = netlink.LinkAddAltName
	}
	if err := set(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: i.Index}}, altName); err != nil {
		return fmt.Errorf("interface %q: set altname %q, %v: %w", i.Name, altName, present, err)
	}
	return nil
}

// Change contains new values for an interface in the current network namespace. Zero values keep the current ones.
type Change struct {
	Name string // renaming sets the interface down for a moment
	MTU  int    // bytes
	MAC  net.HardwareAddr
}

// Change changes an interface, the name last. It stops at the first error. It needs CAP_NET_ADMIN.
func (k *Kernel) Change(i Interface, to Change) error {
	l, err := netlink.LinkByIndex(i.Index)
	if err != nil {
		return fmt.Errorf("interface %q: %w", i.Name, err)
	}
	set := func(what string, wanted bool, do func() error) {
		if wanted && err == nil {
			if err = do(); err != nil {
				err = fmt.Errorf("interface %q: set %s: %w", i.Name, what, err)
			}
		}
	}
	set("mtu", to.MTU != 0, func() error { return netlink.LinkSetMTU(l, to.MTU) })
	set("address", to.MAC != nil, func() error { return netlink.LinkSetHardwareAddr(l, to.MAC) })
	set("name", to.Name != "", func() error { return rename(l, to.Name) })
	return err
}

// rename sets an interface down, because most kernels cannot rename one that is up, and then up again.
func rename(l netlink.Link, name string) (err error) {
	if l.Attrs().Flags&net.FlagUp != 0 {
		if err := netlink.LinkSetDown(l); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, netlink.LinkSetUp(l)) }()
	}
	return netlink.LinkSetName(l, name)
}
