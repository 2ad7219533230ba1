// Package restore records the settings of a node's device before a pod gets it ([Devices.Look]), and restores them
// afterwards ([Devices.Restore]): the driver, the name, MTU, MAC and [settings.Dump] of the interface, and the VF
// settings of its PF. It also binds functions to kernel drivers for pods.
//
// A device is identified by its name on a bus. Its interface may be in a pod. After the pod's network namespace
// ends, the kernel moves the interface back with a delay (net/core/dev.c, default_device_exit_batch). The interface
// is then down and keeps the name that it had in the pod.
//
// The package does not restore devices that pods share, or a device that has replaced the recorded one. A snapshot of
// an earlier boot must not be restored, because booting resets devices.
package restore

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/process"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
)

var (
	ErrGone      = errors.New("the node has lost it")
	ErrNotOnNode = errors.New("its interface is not on the node, and may be in another network namespace")
)

// Links gives access to the interfaces in the host's network namespace. [settings.Kernel] implements it.
type Links interface {
	hostdev.Interfaces
	// The next methods are documented at [settings.Kernel].
	Settings(i link.Interface) (settings.Dump, error)
	Set(i link.Interface, setting string, to settings.Dump) error
	VF(pf string, index int) (*settings.VF, error)
	SetVF(pf string, index int, setting string, to settings.VF) error
	Stacked(i link.Interface, everywhere bool) (found []string, err error)
	Unstack(i link.Interface) (left []string, err error)
	Holders(numbers []string) ([]process.Holder, error)
}

// Devices restores the devices of the node. Its methods may be called concurrently for different devices.
type Devices struct {
	sys   *sysfs.FS
	write func(name, text string) error
	links Links
	steps sync.Map // *step by address
	alone sync.Map // by name: whether nothing was stacked on the device when it was last restored or looked at
}

// New returns the devices below sys. write is [sysfs.Writer] of the same /sys.
func New(sys *sysfs.FS, write func(name, text string) error, links Links) *Devices {
	return &Devices{sys: sys, write: write, links: links}
}

type present struct {
	Snapshot
	is    link.Interface // the interface IfName
	pf    string         // interface of the PF, which has the settings VF
	index int            // index of the VF on the PF
}

// Look returns the state of a device. The error is [ErrGone] if the device does not exist, and [ErrNotOnNode] if its
// interface is not on the node.
func (d *Devices) Look(ref hostdev.Ref) (Snapshot, error) {
	at := ref.Place()
	f := Snapshot{Bus: at.Bus, Device: at.Name}
	if at.Bus == "net" {
		n, ok, err := d.sys.Netdev(ref.IfName)
		if err != nil {
			return f, err
		}
		if !ok {
			return f, fmt.Errorf("interface %s: %w", ref.IfName, ErrGone)
		}
		f.Bus, f.Device = n.Bus, n.Device
	}
	now, err := d.read(f, func(p sysfs.Port) bool { return p.Name == ref.IfName }, func(p sysfs.Port) bool { return p.DevPort == 0 })
	if err == nil && ref.IfName != "" && now.IfName == "" && !sysfs.OnVFIO(now.Driver) {
		err = fmt.Errorf("%s, %s: %w", now.Device, ref.IfName, ErrNotOnNode)
	}
	now.Version = version
	return now.Snapshot, err
}

// Inode returns the inode of a device, or [ErrGone] if the node has lost it since its snapshot or has a different one in its
// place.
func (d *Devices) Inode(f Snapshot) (uint64, error) {
	inode, there, err := d.sys.Inode(f.Bus, f.Device)
	switch {
	case err == nil && !there:
		err = fmt.Errorf("%s: %w", f.Device, ErrGone)
	case err == nil && f.IsReplaced(Snapshot{Inode: inode}):
		err = fmt.Errorf("%s: a different device is in its place: %w", f.Device, ErrGone)
	}
	return inode, err
}

func (d *Devices) now(f Snapshot) (present, error) {
	now, err := d.read(f, func(p sysfs.Port) bool {
		return p.DevPort == f.Port && (p.PortName == f.PortName || p.PortName == "" || f.PortName == "")
	})
	if err == nil && f.VF != nil && now.VF == nil { // without the PF, the settings of the VF cannot be restored
		err = fmt.Errorf("PF of %s: %w", f.Device, ErrNotOnNode)
	}
	return now, err
}

// read returns the current state of the device in f. If the device has several interfaces, read takes the first that
// passes tests[0], or else the first that passes tests[1], and so on. The other interfaces are separate devices.
func (d *Devices) read(f Snapshot, tests ...func(sysfs.Port) bool) (now present, err error) {
	now.Bus, now.Device = f.Bus, f.Device
	if now.Inode, err = d.Inode(f); err != nil {
		return now, err
	}
	if f.Bus == "pci" {
		if err := d.function(&now); err != nil {
			return now, err
		}
	}
	ports, err := hostdev.Ports(d.sys, d.links, hostdev.Place{Bus: f.Bus, Name: f.Device})
	if err != nil {
		return now, err
	}
	for _, test := range tests {
		n := slices.IndexFunc(ports, test)
		if n < 0 {
			continue
		}
		i, err := d.links.Interface("", ports[n].Name)
		var dump settings.Dump
		if err == nil {
			dump, err = d.links.Settings(i)
		}
		// The interface may just have been removed or renamed, and its name may be the name or altname of another one.
		if errors.Is(err, link.ErrNoInterface) || err == nil && i.Index != ports[n].Index {
			return now, nil
		} else if err != nil {
			return now, err
		}
		now.is, now.Settings = i, dump
		now.Port, now.PortName, now.IfName, now.MTU = ports[n].DevPort, ports[n].PortName, i.Name, i.MTU
		if len(i.MAC) == 6 {
			now.MAC = i.MAC.String()
		}
		break
	}
	return now, nil
}

// function reads the settings that only a PCI function has. It returns an error if the PF of a VF cannot be read,
// because the settings of the VF would be neither recorded nor restored.
func (d *Devices) function(now *present) error {
	fn, err := d.fn(now.Device)
	if err != nil {
		return err
	}
	now.Driver = fn.Driver
	if now.Override, err = d.sys.Override(fn); err != nil || fn.PF == nil {
		return err
	}
	away := fmt.Errorf("PF %s of %s: %w", fn.PF, fn.Address, ErrNotOnNode)
	pf := hostdev.Place{Bus: "pci", Name: fn.PF.String()}
	ports, err := hostdev.Ports(d.sys, d.links, pf)
	if err != nil {
		return err
	}
	if len(ports) == 0 { // a PF without a network driver has no interface
		has, err := d.sys.HasPorts(pf.Bus, pf.Name)
		if has {
			return away
		}
		return err
	}
	index, ok, err := d.sys.VFIndex(*fn.PF, fn.Address)
	if !ok {
		return err
	}
	now.pf, now.index = ports[0].Name, index
	now.VF, err = d.links.VF(now.pf, index)
	if errors.Is(err, link.ErrNoInterface) {
		return away
	}
	return err
}

// fn reads a function. It first waits until no step holds the lock of the function.
func (d *Devices) fn(address string) (sysfs.Function, error) {
	a, err := pci.Parse(address)
	if err == nil {
		err = d.settled(address)
	}
	if err != nil {
		return sysfs.Function{}, err
	}
	fn, ok, err := d.sys.PCI(a)
	if err == nil && !ok {
		err = fmt.Errorf("%s: %w", address, ErrGone)
	}
	return fn, err
}
