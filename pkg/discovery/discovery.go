// Package discovery finds the device behind an attachment and fills in what the
// kernel knows of it, in the terms of the Device Information Specification.
//
// Several sources may name the device: the configuration, the runtime, an existing
// device-info file, the result of the plugins before, the interface in the pod's network
// namespace. They must all mean the same device: if two do not, that is a
// [*ConflictError]. The result lists the source of every fact.
//
// No look-up takes longer the more VFs or interfaces the node has, but for two exceptions,
// which packages sysfs and link name.
package discovery

import (
	"fmt"
	"net"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/sysfs"
)

// Interfaces asks the kernel, or a captured host, for one network interface.
type Interfaces interface {
	hostdev.Interfaces
	// VDPAMAC gives the hardware address of a vDPA device.
	VDPAMAC(name string) (net.HardwareAddr, bool, error)
}

// Finder finds devices on one host.
type Finder struct {
	Sys        *sysfs.FS
	Interfaces Interfaces
	Switches   hostdev.Switches // nil = representors are not looked for
}

// Target is all that is known of an attachment's device before looking.
type Target struct {
	Declared   *devinfo.Info    // by the configuration
	DeviceIDs  []config.NamedID // each a PCI address, an auxiliary device, a vDPA device, or opaque
	Existing   *devinfo.Info    // what the device-info file holds
	PCIID      string           // pciID and socketPath of our interface in the result so far
	SocketPath string

	Netns, IfName     string // "" netns = do not look for an interface
	FollowLower       bool
	SubfunctionParent bool
}

// Device is what was found.
type Device struct {
	Info  *devinfo.Info // facts of the kernel and the result: see [Finder.Find]; nil = none
	Facts []Fact        // one for every key of Info

	InNetns   bool   // the interface is in the network namespace
	Interface string // parent device of the interface, else its kind; "" = neither
	// ReachedFromInterface says that the interface is the device's own or, with FollowLower, above that.
	ReachedFromInterface bool

	Virtual bool   // it is software that can have no device, such as veth
	Shared  bool   // the device is not the interface's alone: it is that of a lower one, of a representor's PF, or has another port
	SF      string // the sub-function, an auxiliary device, that it is, or is on: the PCI address is the parent's; "" = none

	// IsInterface says that the interface in the network namespace is this very device, rather than
	// one that happens to be there while another source names the device.
	IsInterface bool

	// Problem says why Info is nil or incomplete, when something should have been
	// found: a *MissingError or *UndescribableError.
	Problem  error
	Warnings []string
}

// A Fact is one value and where it came from.
type Fact struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// A ConflictError says that two sources name different devices.
type ConflictError struct{ SourceA, DeviceA, SourceB, DeviceB string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s names %s, but %s names %s; both must name the same device", e.SourceA, e.DeviceA, e.SourceB, e.DeviceB)
}

// A MissingError says that a device that a source names does not exist.
type MissingError struct{ Source, Device string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s names %s, which is not on this node", e.Source, e.Device)
}

// An UndescribableError says that a device exists but cannot be described.
type UndescribableError struct{ Device, Why string }

func (e *UndescribableError) Error() string { return e.Device + " cannot be described: " + e.Why }

// Find finds the device that the target's sources name, and returns the kernel's facts about it. It fails
// with a [*ConflictError] if two sources name different devices, if the network namespace is gone, or if
// the kernel cannot be read. A device that does not exist is a Problem of [Device].
//
// Sources name a device in this order (identify.go): deviceInfo, the deviceIDs, the device-info file, the
// pciID of the result, the interface in the network namespace. The type is that of deviceInfo, else that of the
// file, else vdpa if a vDPA device was named or found, else pci.
//
// Info contains these facts, each with its source in Facts:
//
//   - pci (describe.go): pci-address, the name of the device; pf-pci-address, from the link physfn;
//     rdma-device, from the directory infiniband; representor-device, from devlink, or the names of the
//     PF's ports, if the PF is in switchdev mode.
//   - vdpa (vdpa.go): parent-device, the name of the vDPA device; driver and path, from its directory in
//     /sys/bus/vdpa; pci-address, pf-pci-address and representor-device of the function below. The path is the
//     character device of vhost_vdpa, or the virtio device of virtio_vdpa.
//   - vhost-user and memif (describe.go): path, the socketPath of the result.
//
// [devinfo.Merge] joins them with the file and deviceInfo.
func (f *Finder) Find(t Target) (*Device, error) {
	s := &search{Finder: f, target: t, found: &Device{}, seen: map[pci.Address]sysfs.Function{}}
	if err := s.identify(); err != nil {
		return nil, err
	}
	if err := s.describe(); err != nil {
		return nil, err
	}
	followed := s.lent != nil && s.target.FollowLower
	s.found.ReachedFromInterface = s.itself || followed
	s.found.Shared = followed || s.lent != nil && s.same(*s.lent, s.where) // even if another source names it
	s.found.IsInterface = s.isInterface()
	return s.found, nil
}

// search is one Find.
type search struct {
	*Finder
	target Target
	found  *Device
	claims []claim
	where  ref                            // all claims together
	seen   map[pci.Address]sysfs.Function // functions that were read already
	virtio string                         // the virtioN below the interface in the namespace; "" = none
	itself bool                           // the last claim is that interface's own
	lent   *ref                           // that interface's device, which others use too; nil = it has none such
}

// function is Sys.PCI, asked once for each address.
func (s *search) function(a pci.Address) (fn sysfs.Function, ok bool, err error) {
	if fn, ok = s.seen[a]; ok {
		return fn, true, nil
	}
	if fn, ok, err = s.Sys.PCI(a); ok {
		s.seen[a] = fn
	}
	return fn, ok, err
}

// device is the auxiliary device that was named, else the PCI function.
func (s *search) device() (d sysfs.Device, ok bool, err error) {
	if s.where.aux != "" {
		return s.Sys.Auxiliary(s.where.aux)
	}
	return s.function(*s.where.pci)
}

func (s *search) warn(format string, args ...any) {
	s.found.Warnings = append(s.found.Warnings, fmt.Sprintf(format, args...))
}

// typ is the type that the description must have: the declared one, the existing
// file's, vdpa where a vDPA device was named, else empty.
func (s *search) typ() devinfo.Type {
	for _, info := range []*devinfo.Info{s.target.Declared, s.target.Existing} {
		if info != nil && info.Type != "" {
			return info.Type
		}
	}
	if s.where.vdpa != "" {
		return devinfo.TypeVDPA
	}
	return ""
}

// IsSocket says that a device of that type is a socket, which has a directory and no nodes.
func IsSocket(t devinfo.Type) bool { return t == devinfo.TypeVhostUser || t == devinfo.TypeMemif }

// ref is a device on the buses that the specification has types for.
type ref struct {
	pci  *pci.Address // of the function itself, or the one above an SF or a vDPA device
	aux  string       // the SF, or the one below a vDPA device; another auxiliary device, if it was named
	vdpa string

	// beside says that it is known by a virtio device only, whose vDPA device the
	// kernel puts beside it: pci carries that vDPA device, or the SF below it.
	beside bool
}

func (r ref) String() string {
	switch {
	case r.vdpa != "":
		return "the vDPA device " + r.vdpa
	case r.aux != "":
		return "the auxiliary device " + r.aux
	case r.pci != nil:
		return "the PCI function " + r.pci.String()
	}
	return "no device"
}
