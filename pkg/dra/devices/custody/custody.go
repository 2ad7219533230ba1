// Package custody takes one of the node's own devices from the host, for a pod, and gives
// it back as it was: its driver, and name, MTU and MAC of its interface, and what its PF has
// set for it. What a device was is noted before the pod gets it ([Devices.Look]), so that
// whoever reads the note can give it back ([Devices.Restore]).
//
// A device is found by its place on a bus. Its interface may be in a pod, and after the end
// of the pod's network namespace it comes back when the kernel gets round to it
// (net/core/dev.c, default_device_exit_batch): with the pod's name for it, and down.
//
// It is not for devices that pods share, nor for what an earlier boot has noted: the kernel
// forgets all of it, and so it does of a device whose place another one has.
package custody

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

var (
	// ErrGone says that the node has the device no more.
	ErrGone = errors.New("the node has lost it")
	// ErrAway says that a device's interface is not on the node, where it was.
	ErrAway = errors.New("its interface is not on the node: it may be in another network namespace")
)

// A Mismatch is what could not be made as it was.
type Mismatch struct {
	What []string // see [Whats]
	Err  error    // why not
}

func (m *Mismatch) Error() string {
	return fmt.Sprintf("%s: not as before the ADD: %v", strings.Join(m.What, ", "), m.Err)
}

func (m *Mismatch) Unwrap() error { return m.Err }

// The things of a device that are given back, beside the settings of a VF that its PF has: see
// [link.VFSettings].
const (
	Away   = "away" // the interface is not back, which no setting changes
	Driver = "driver"
	Name   = "name" // of the interface
	MTU    = "mtu"
	MAC    = "mac"
)

// Links are the interfaces in the host's network namespace. [*link.Kernel] is one.
type Links interface {
	hostdev.Interfaces
	VF(pf string, index int) (vf link.VFRecord, ok bool, err error)
	Change(name string, to link.Change) error
	SetVF(pf string, index int, setting string, to link.VFSettings) error
}

// Devices are those of the node. The methods may be called at once for different devices.
type Devices struct {
	sys   *sysfs.FS
	write func(name, text string) error
	links Links

	mu        sync.Mutex
	unbinding map[string]chan error // by address: see unbound
}

// New takes the node's /sys to read, what writes attributes below it ([sysfs.Writer]), and
// its interfaces.
func New(sys *sysfs.FS, write func(name, text string) error, links Links) *Devices {
	return &Devices{sys: sys, write: write, links: links, unbinding: map[string]chan error{}}
}

// Look notes what a device is like. It is [ErrGone] if there is none, and [ErrAway] if
// somebody has its interface.
func (h *Devices) Look(d hostdev.Ref) (Former, error) {
	at := d.Place()
	f := Former{Bus: at.Bus, Device: at.Name}
	if at.Bus == "net" {
		n, ok, err := h.sys.Netdev(d.IfName)
		if err != nil {
			return f, err
		}
		if !ok {
			return f, fmt.Errorf("interface %s: %w", d.IfName, ErrGone)
		}
		f.Bus, f.Device = n.Bus, n.Device
	}
	now, err := h.read(f, func(p sysfs.Port) bool { return p.Name == d.IfName }, func(p sysfs.Port) bool { return p.DevPort == 0 })
	if err == nil && d.IfName != "" && now.IfName == "" && !strings.Contains(now.Driver, "vfio") {
		err = fmt.Errorf("%s, %s: %w", now.Device, d.IfName, ErrAway)
	}
	return now, err
}

// State is what has become of a device that was noted before.
type State string

// The states.
const (
	Here     State = "here"     // its interface may be in a pod
	Replaced State = "replaced" // another device is in its place
	Gone     State = "gone"
)

// State says what has become of a device; "" beside an error.
func (h *Devices) State(f Former) (State, error) {
	there, err := h.sys.HasDevice(f.Bus, f.Device)
	if err != nil {
		return "", err
	}
	if !there {
		return Gone, nil
	}
	inode, err := h.sys.Inode(f.Bus, f.Device)
	switch {
	case err != nil:
		return "", err
	case f.IsReplaced(Former{Inode: inode}):
		return Replaced, nil
	}
	return Here, nil
}

// now is what a device is like that was noted before.
func (h *Devices) now(f Former) (Former, error) {
	now, err := h.read(f, func(p sysfs.Port) bool {
		return p.DevPort == f.Port && (p.PortName == f.PortName || p.PortName == "" || f.PortName == "")
	})
	if err == nil && f.IsReplaced(now) {
		err = fmt.Errorf("%s: another device is in its place: %w", f.Device, ErrGone)
	}
	return now, err
}

// read describes the device in the place of f, with the interface that is its by the first
// test that one passes: its neighbour is another device.
func (h *Devices) read(f Former, its ...func(sysfs.Port) bool) (Former, error) {
	now := Former{Bus: f.Bus, Device: f.Device}
	if there, err := h.sys.HasDevice(f.Bus, f.Device); err != nil {
		return now, err
	} else if !there {
		return now, fmt.Errorf("%s: %w", f.Device, ErrGone)
	}
	var err error
	if now.Inode, err = h.sys.Inode(f.Bus, f.Device); err != nil {
		return now, err
	}
	if f.Bus == "pci" {
		if err := h.function(&now); err != nil {
			return now, err
		}
	}
	ports, err := hostdev.Ports(h.sys, h.links, hostdev.Place{Bus: f.Bus, Name: f.Device})
	if err != nil {
		return now, err
	}
	at := -1
	for _, is := range its {
		if at < 0 {
			at = slices.IndexFunc(ports, is)
		}
	}
	if at < 0 {
		return now, nil
	}
	port := ports[at]
	i, err := h.links.Interface("", port.Name)
	if errors.Is(err, link.ErrNoInterface) { // it has gone meanwhile
		return now, nil
	} else if err != nil {
		return now, err
	}
	now.Port, now.PortName, now.IfName, now.MTU = port.DevPort, port.PortName, i.Name, i.MTU
	if len(i.MAC) == 6 {
		now.MAC = i.MAC.String()
	}
	return now, nil
}

// function reads what only a PCI function has.
func (h *Devices) function(now *Former) error {
	fn, err := h.fn(now.Device)
	if err != nil {
		return err
	}
	now.Driver = fn.Driver
	if now.Override, err = h.sys.Override(fn); err != nil || fn.PF == nil {
		return err
	}
	pf, index, ok, err := h.onPF(fn)
	if !ok {
		return err
	}
	vf, ok, err := h.links.VF(pf, index)
	if errors.Is(err, link.ErrNoInterface) {
		err = pfAway(fn)
	}
	if ok {
		now.VF = &vf.VFSettings
	}
	return err
}

// pfAway is the error of a VF whose PF cannot be asked: what the PF has set would be neither noted nor
// restored.
func pfAway(fn sysfs.Function) error {
	return fmt.Errorf("%s: its PF %s: %w", fn.Address, fn.PF, ErrAway)
}

// fn reads a function once nothing holds its lock in the kernel: see unbound.
func (h *Devices) fn(address string) (sysfs.Function, error) {
	a, err := pci.Parse(address)
	if err == nil {
		err = h.unbound(address)
	}
	if err != nil {
		return sysfs.Function{}, err
	}
	fn, ok, err := h.sys.PCI(a)
	if err == nil && !ok {
		err = fmt.Errorf("%s: %w", address, ErrGone)
	}
	return fn, err
}

// onPF returns the interface of a VF's PF, and the VF's number on it. ok is false if the PF has no
// interface because no network driver drives it. If its interface is not on the node the error is
// [ErrAway].
func (h *Devices) onPF(fn sysfs.Function) (pf string, index int, ok bool, err error) {
	at := hostdev.Place{Bus: "pci", Name: fn.PF.String()}
	ports, err := hostdev.Ports(h.sys, h.links, at)
	if err != nil {
		return "", 0, false, err
	}
	if len(ports) == 0 {
		has, err := h.sys.HasPorts(at.Bus, at.Name)
		if has {
			err = pfAway(fn)
		}
		return "", 0, false, err
	}
	index, ok, err = h.sys.VFIndex(*fn.PF, fn.Address)
	return ports[0].Name, index, ok, err
}
