// Package discovery finds the device behind an attachment and describes it in the terms of the Device
// Information Specification.
//
// The cost of a lookup does not grow with the number of VFs or interfaces on the node, except for two lookups
// described in packages sysfs and link, and for a function with an interface but no RDMA device: it may have one on another
// function, so the RDMA devices of the node are looked at.
package discovery

import (
	"fmt"
	"net"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Interfaces reads one network interface from the kernel or from a captured host.
type Interfaces interface {
	hostdev.Interfaces
	// VDPAMAC returns the hardware address of a vDPA device.
	VDPAMAC(name string) (net.HardwareAddr, bool, error)
	// WithMAC returns the names of the interfaces in this process's network namespace that have a hardware address.
	WithMAC(mac net.HardwareAddr) ([]string, error)
}

// Finder finds devices on one host.
type Finder struct {
	Sys        *sysfs.FS
	Interfaces Interfaces
	Eswitches  hostdev.Eswitches // nil = do not look for representors
}

// Target is everything known about an attachment's device before the search.
type Target struct {
	Declared   *devinfo.Info    // deviceInfo of the configuration
	DeviceIDs  []config.NamedID // each a PCI address, an auxiliary device, a vDPA device, or opaque
	Existing   *devinfo.Info    // content of the device-info file
	PCIID      string           // pciID and socketPath of the pod's interface in the previous result
	SocketPath string

	Netns, IfName     string // "" netns = do not look for an interface
	FollowLower       bool
	SubfunctionParent bool
}

// Device is the result of a search.
type Device struct {
	Info  *devinfo.Info // facts from the kernel and the result, see [Finder.Find]; nil = none
	Facts []Fact        // one for every key of Info

	InNetns   bool   // the interface is in the network namespace
	Interface string // parent device of the interface, else its kind; "" = neither known
	// ReachedFromInterface is true if the device belongs to the interface, or with FollowLower to an interface
	// below it.
	ReachedFromInterface bool

	Virtual bool   // the interface, or the one at the bottom of its stack, is software without a device, such as veth
	Below   string // that one at the bottom: "the bridge br0"; "" = the interface itself
	// Shared is true if other interfaces use the device too: it belongs to a lower interface, is the PF of a
	// representor, or has several ports.
	Shared bool
	// MaybeShared is true if nothing shows whether the function has other ports, see [hostdev.CountPorts].
	MaybeShared bool
	// SF is the name on the auxiliary bus of the SF that is the device or carries it; "" = none. Info's pci-address
	// is that of the SF's parent.
	SF     string
	Driver string // kernel driver of the PCI function that Info describes; "" = none
	// RDMA is the device's RDMA device if another PCI function carries it; nil = none, or the device itself carries it.
	RDMA *sysfs.Apart

	// IsInterface is true if the interface in the network namespace is this device. It is false if another
	// source names the device and the interface is a different one.
	IsInterface bool

	// Problem is the reason why Info is nil or incomplete although a source names a device: a *MissingError or
	// *UndescribableError.
	Problem  error
	Warnings []string
}

// A Fact is one value and its source.
type Fact struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// A ConflictError is the error for two sources that name different devices.
type ConflictError struct{ SourceA, DeviceA, SourceB, DeviceB string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s names %s, but %s names %s; both must name the same device", e.SourceA, e.DeviceA, e.SourceB, e.DeviceB)
}

// A MissingError is the error for a source that names a device that does not exist.
type MissingError struct{ Source, Device string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s names %s, which is not on this node", e.Source, e.Device)
}

// An UndescribableError is the error for a device that exists but cannot be described.
type UndescribableError struct{ Device, Why string }

func (e *UndescribableError) Error() string { return e.Device + " cannot be described: " + e.Why }

// Find finds the device that the target's sources name, and returns the kernel's facts about it. It fails with
// a [*ConflictError] if two sources name different devices. It also fails if the network namespace does not
// exist, or if the kernel cannot be read. A missing device is not an error, but a Problem of [Device].
//
// Sources name a device in this order: deviceInfo, the deviceIDs, the device-info file, the pciID of the result, the
// interface in the network namespace. The type is deviceInfo's type, else the file's, else vdpa if a vDPA device was
// named or found, else pci. [devinfo.Merge] combines the facts with the file and deviceInfo.
func (f *Finder) Find(t Target) (*Device, error) {
	s := &search{Finder: f, target: t, found: &Device{}, seen: map[pci.Address]sysfs.Function{}}
	if err := s.identify(); err != nil {
		return nil, err
	}
	if err := s.describe(); err != nil {
		return nil, err
	}
	followed := s.sharedDevice != nil && s.target.FollowLower
	s.found.ReachedFromInterface = s.ownDevice || followed
	// Without FollowLower, another source may still name the shared device.
	s.found.Shared = followed || s.sharedDevice != nil && s.mayBeSame(*s.sharedDevice, s.where)
	if s.ownDevice && s.found.Info != nil {
		// The interface's device may be a function, and another source may name a vDPA device on it.
		its := s.statements[len(s.statements)-1].ref
		s.found.IsInterface = !its.vdpaUnknown && its.vdpa == s.where.vdpa && its.aux == s.where.aux
	}
	return s.found, nil
}

type search struct {
	*Finder
	target       Target
	found        *Device
	statements   []statement
	where        ref                            // the device that all statements together name
	seen         map[pci.Address]sysfs.Function // functions read so far
	virtio       string                         // virtio device (virtioN) below the interface; "" = none
	ownDevice    bool                           // the last statement names the interface's own device
	several      string                         // why the interface has no device of its own but some below it; "" = none
	link         *link.Interface                // the pod's interface, or the one below it that has a device; nil = none
	sharedDevice *ref                           // device below the interface that other interfaces use too; nil = none
}

func (s *search) function(a pci.Address) (fn sysfs.Function, ok bool, err error) {
	if fn, ok = s.seen[a]; ok {
		return fn, true, nil
	}
	if fn, ok, err = s.Sys.PCI(a); ok {
		s.seen[a] = fn
	}
	return fn, ok, err
}

func (s *search) device() (d sysfs.Device, ok bool, err error) {
	if s.where.aux != "" {
		return s.Sys.Auxiliary(s.where.aux)
	}
	return s.function(*s.where.pci)
}

func (s *search) warn(format string, args ...any) {
	s.found.Warnings = append(s.found.Warnings, fmt.Sprintf(format, args...))
}

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

// IsSocket reports whether devices of type t are sockets, which have a path and no device node.
func IsSocket(t devinfo.Type) bool { return t == devinfo.TypeVhostUser || t == devinfo.TypeMemif }

// ref names a device on the PCI, auxiliary and vdpa buses.
type ref struct {
	pci  *pci.Address // the function itself, or the one that carries the SF or vDPA device
	aux  string       // the SF, the SF that carries the vDPA device, or another auxiliary device that a source names
	vdpa string

	// vdpaUnknown is true if only a virtio device is known, and it belongs to some vDPA device on pci or its
	// SF. The kernel does not link the two.
	vdpaUnknown bool
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
