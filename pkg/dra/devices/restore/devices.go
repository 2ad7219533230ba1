// Package restore notes what one of the node's devices is like before a pod gets it ([Devices.Look]), and
// restores it afterwards ([Devices.Restore]): its driver, name, MTU, MAC and [link.Settings] of its interface, and what
// its PF has set for it. It also binds functions to kernel drivers for pods.
//
// A device is found by its place on a bus. Its interface may be in a pod. After the end of the pod's network
// namespace the kernel moves it back some time later (net/core/dev.c, default_device_exit_batch), with the
// pod's name for it, and down.
//
// The package is neither for devices that pods share nor for notes of an earlier boot: booting resets
// devices. Nor does it restore a device that has replaced the noted one.
package restore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

var (
	ErrGone = errors.New("the node has lost it")
	ErrAway = errors.New("its interface is not on the node: it may be in another network namespace")
)

// Links are the interfaces in the host's network namespace. [*link.Kernel] is one.
type Links interface {
	hostdev.Interfaces
	VF(pf string, index int) (vf link.VFRecord, ok bool, err error)
	Change(name string, to link.Change) error
	Settings(name string) (link.Settings, error)
	Set(name, setting string, to link.Settings) error
	SetAltName(name, altName string, present bool) error
	SetVF(pf string, index int, setting string, to link.VFSettings) error
}

// Devices are those of the node. The methods may be called concurrently for different devices.
type Devices struct {
	sys       *sysfs.FS
	write     func(name, text string) error
	links     Links
	unbinding sync.Map // of chan error, by address: see unbound
}

// New returns the devices below sys. write is [sysfs.Writer] of the same /sys.
func New(sys *sysfs.FS, write func(name, text string) error, links Links) *Devices {
	return &Devices{sys: sys, write: write, links: links}
}

// Former is what a device was like before an ADD, and what it is to be like after the DEL. It is valid
// during the boot in which it was noted.
type Former struct {
	Bus    string `json:"bus"`             // where the device is: "pci", "auxiliary", "vdpa", ...
	Device string `json:"device"`          // its name there
	Inode  uint64 `json:"inode,omitempty"` // of its directory in /sys; 0 = unknown

	Port     int    `json:"port,omitempty"`     // dev_port of its interface
	PortName string `json:"portName,omitempty"` // phys_port_name

	// Of a PCI function:
	Driver   string `json:"driver,omitempty"`   // "" = unbound
	Override string `json:"override,omitempty"` // driver_override

	// Of its interface on the node, if there was one:
	IfName string `json:"ifName,omitempty"`
	MTU    int    `json:"mtu,omitempty"`
	MAC    string `json:"mac,omitempty"` // "" = it has none of six bytes

	Settings *link.Settings `json:"settings,omitempty"` // of its interface; nil = not noted

	VF *link.VFSettings `json:"vf,omitempty"` // of a VF; nil = its PF does not tell
}

// IsReplaced reports whether now is another device than the noted one: VFs were created again, or a card
// was exchanged.
func (f Former) IsReplaced(now Former) bool {
	return f.Inode != 0 && now.Inode != 0 && f.Inode != now.Inode
}

// present is a device as it is now.
type present struct {
	Former
	pf    string // interface of the PF that has the settings VF
	index int    // of the VF on it
}

// Look notes what a device is like. The error is [ErrGone] if the device does not exist, and [ErrAway] if
// its interface is not on the node.
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
	return now.Former, err
}

// State says what has become of a device that was noted before.
type State string

const (
	Here     State = "here"     // its interface may be in a pod
	Replaced State = "replaced" // another device is in its place
	Gone     State = "gone"
)

// State returns what has become of a device; "" beside an error.
func (h *Devices) State(f Former) (State, error) {
	inode, err := h.inode(f)
	switch {
	case errors.Is(err, ErrGone):
		return Gone, nil
	case err != nil:
		return "", err
	case f.IsReplaced(Former{Inode: inode}):
		return Replaced, nil
	}
	return Here, nil
}

func (h *Devices) inode(f Former) (uint64, error) {
	there, err := h.sys.HasDevice(f.Bus, f.Device)
	if err == nil && !there {
		err = fmt.Errorf("%s: %w", f.Device, ErrGone)
	}
	if err != nil {
		return 0, err
	}
	return h.sys.Inode(f.Bus, f.Device)
}

// now returns what a noted device is like now.
func (h *Devices) now(f Former) (present, error) {
	now, err := h.read(f, func(p sysfs.Port) bool {
		return p.DevPort == f.Port && (p.PortName == f.PortName || p.PortName == "" || f.PortName == "")
	})
	switch {
	case err != nil:
	case f.IsReplaced(now.Former):
		err = fmt.Errorf("%s: another device is in its place: %w", f.Device, ErrGone)
	case f.VF != nil && now.VF == nil: // what the PF has set for it would not be restored
		err = fmt.Errorf("%s: its PF: %w", f.Device, ErrAway)
	}
	return now, err
}

// read describes the device in the place of f. Its interface is the first that passes the first test which
// any passes; its other ports are devices of their own.
func (h *Devices) read(f Former, tests ...func(sysfs.Port) bool) (now present, err error) {
	now.Bus, now.Device = f.Bus, f.Device
	if now.Inode, err = h.inode(f); err != nil {
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
	for _, test := range tests {
		n := slices.IndexFunc(ports, test)
		if n < 0 {
			continue
		}
		i, err := h.links.Interface("", ports[n].Name)
		if errors.Is(err, link.ErrNoInterface) { // it has just gone
			return now, nil
		} else if err != nil {
			return now, err
		}
		settings, err := h.links.Settings(i.Name)
		if errors.Is(err, link.ErrNoInterface) {
			return now, nil
		} else if err != nil {
			return now, err
		}
		now.Settings = &settings
		now.Port, now.PortName, now.IfName, now.MTU = ports[n].DevPort, ports[n].PortName, i.Name, i.MTU
		if len(i.MAC) == 6 {
			now.MAC = i.MAC.String()
		}
		break
	}
	return now, nil
}

// function reads what only a PCI function has. What the PF of a VF has set must be readable, as it would
// be neither noted nor restored otherwise.
func (h *Devices) function(now *present) error {
	fn, err := h.fn(now.Device)
	if err != nil {
		return err
	}
	now.Driver = fn.Driver
	if now.Override, err = h.sys.Override(fn); err != nil || fn.PF == nil {
		return err
	}
	away := fmt.Errorf("%s: its PF %s: %w", fn.Address, fn.PF, ErrAway)
	pf := hostdev.Place{Bus: "pci", Name: fn.PF.String()}
	ports, err := hostdev.Ports(h.sys, h.links, pf)
	if err != nil {
		return err
	}
	if len(ports) == 0 { // it may have none, without a network driver
		has, err := h.sys.HasPorts(pf.Bus, pf.Name)
		if has {
			return away
		}
		return err
	}
	index, ok, err := h.sys.VFIndex(*fn.PF, fn.Address)
	if !ok {
		return err
	}
	vf, ok, err := h.links.VF(ports[0].Name, index)
	if errors.Is(err, link.ErrNoInterface) {
		return away
	}
	if ok {
		now.VF, now.pf, now.index = &vf.VFSettings, ports[0].Name, index
	}
	return err
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

// MayBind refuses a driver that the kernel does not have, and a function that no IOMMU isolates from what
// the host uses: its group may contain only bridges and functions on the same driver.
func (h *Devices) MayBind(f Former, driver string) error {
	has, err := h.sys.HasDriver(driver)
	if err == nil && !has {
		err = fmt.Errorf("driver: %s: the kernel has no such driver: load the module %s on the node", driver, driver)
	}
	if err != nil {
		return err
	}
	group, others, err := h.Beside(f, driver)
	switch {
	case err != nil:
		return err
	case group == "":
		free, err := h.sys.WithoutIOMMU()
		if err == nil && !free {
			err = fmt.Errorf("driver: %s: no IOMMU isolates %s: enable it in the firmware and by a kernel parameter such as intel_iommu=on", driver, f.Device)
		}
		return err
	case others != nil:
		return fmt.Errorf("driver: %s: IOMMU group %s of %s holds %s, too: bind them to %s first, or select a device with a group of its own",
			driver, group, f.Device, strings.Join(others, ", "), driver)
	}
	return nil
}

// Beside returns the IOMMU group of a function, and its members that are neither bridges nor on driver.
func (h *Devices) Beside(f Former, driver string) (group string, others []string, err error) {
	fn, err := h.fn(f.Device)
	if err != nil {
		return "", nil, err
	}
	group, members, err := h.sys.IOMMUGroup(fn)
	for _, m := range members {
		if m.Name != f.Device && !m.Bridge && m.Driver != driver {
			others = append(others, fmt.Sprintf("%s (driver %q)", m.Name, m.Driver))
		}
	}
	return group, others, err
}

// Bind binds a function to a driver, and no other may have it until [Devices.Restore].
func (h *Devices) Bind(f Former, driver string) error { return h.bind(f.Device, driver, driver) }

// bind binds a function to a driver, "" for none, and leaves it with that driver_override. An override
// takes precedence over the order of drivers and sriov_drivers_autoprobe.
func (h *Devices) bind(device, driver, override string) error {
	attribute := "bus/pci/devices/" + device + "/driver_override"
	fn, err := h.fn(device)
	if err != nil {
		return err
	}
	set := func(name, text string) {
		if err == nil {
			err = h.set(name, text)
		}
	}
	if fn.Driver != driver {
		set(attribute, driver)
		if err == nil && fn.Driver != "" {
			err = h.unbind(device, fn.Driver)
		}
		if driver != "" {
			set("bus/pci/drivers_probe", device)
		}
	}
	if set(attribute, override); err != nil {
		return err
	}
	fn, err = h.fn(device)
	if err == nil && fn.Driver != driver {
		err = fmt.Errorf("%s: bound to driver %q, not to %q: see the kernel's log on the node", device, fn.Driver, driver)
	}
	return err
}

// set writes an attribute; "" empties it.
func (h *Devices) set(name, text string) error {
	if err := h.write(name, text+"\n"); err != nil {
		return fmt.Errorf("write %q: %w", text, err)
	}
	return nil
}

// patience is how long a driver may take to let go of a function. VFIO's waits for as long
// as a process has the function open (drivers/vfio/vfio_main.c, vfio_unregister_group_dev).
const patience = 5 * time.Second

func (h *Devices) unbind(device, driver string) error {
	done := make(chan error, 1)
	h.unbinding.Store(device, done)
	go func() { done <- h.set("bus/pci/drivers/"+driver+"/unbind", device) }()
	return h.unbound(device)
}

// unbound waits for a call of unbind, of an earlier try too. While the write is in the kernel it holds the
// lock of the device: reading or writing its driver_override, or probing it, would hang.
func (h *Devices) unbound(device string) error {
	done, ok := h.unbinding.Load(device)
	if !ok {
		return nil
	}
	select {
	case err := <-done.(chan error):
		h.unbinding.Delete(device)
		return err
	case <-time.After(patience):
		return fmt.Errorf("%s: its driver does not let go of it: a process still has it open", device)
	}
}
