package restore

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// MayBind returns an error if the kernel has no such driver, or if the function is not isolated from devices of the
// host by an IOMMU. The IOMMU group of the function may only contain bridges and functions on the same driver.
func (d *Devices) MayBind(f Snapshot, driver string) error {
	has, err := d.sys.HasDriver(driver)
	if err == nil && !has {
		err = fmt.Errorf("driver: %s: the kernel has no such driver: load the module %s on the node", driver, driver)
	}
	if err != nil {
		return err
	}
	group, others, err := d.Beside(f, driver)
	switch {
	case err != nil:
		return err
	case group == "":
		free, err := d.sys.WithoutIOMMU()
		if err == nil && !free {
			err = fmt.Errorf("driver: %s: no IOMMU isolates %s: enable it in the firmware and by a kernel parameter such as intel_iommu=on", driver, f.Device)
		}
		return err
	case others != nil:
		return fmt.Errorf("driver: %s: IOMMU group %s of %s also contains %s: bind them to %s first, or select a device with a group of its own",
			driver, group, f.Device, strings.Join(others, ", "), driver)
	}
	return nil
}

// Beside returns the IOMMU group of a function, and the other members that are neither bridges nor on driver.
func (d *Devices) Beside(f Snapshot, driver string) (group string, others []string, err error) {
	fn, err := d.fn(f.Device)
	if err != nil {
		return "", nil, err
	}
	group, members, err := d.sys.IOMMUGroup(fn)
	for _, m := range members {
		if m.Name != f.Device && !m.Bridge && m.Driver != driver {
			others = append(others, fmt.Sprintf("%s (driver %q)", m.Name, m.Driver))
		}
	}
	return group, others, err
}

// Bind binds a function to a driver and reserves it for this driver until [Devices.Restore].
func (d *Devices) Bind(f Snapshot, driver string) error { return d.bind(f.Device, driver, driver) }

// bind binds a function to a driver, or unbinds it if driver is "". It leaves driver_override set to override.
// driver_override has priority over the order of drivers and over sriov_drivers_autoprobe.
func (d *Devices) bind(device, driver, override string) error {
	attribute := "bus/pci/devices/" + device + "/driver_override"
	fn, err := d.fn(device)
	if err != nil {
		return err
	}
	if fn.Driver != driver {
		err = d.set(attribute, driver)
		if err == nil && fn.Driver != "" {
			err = d.unbind(device, fn.Driver)
		}
		if err == nil && driver != "" {
			err = d.step(device, func() error { return d.set("bus/pci/drivers_probe", device) }, func() string {
				return "its driver does not finish taking it: see the kernel's log on the node"
			})
		}
	}
	if err == nil {
		err = d.set(attribute, override)
	}
	if err == nil {
		fn, err = d.fn(device)
	}
	if err == nil && fn.Driver != driver {
		err = fmt.Errorf("%s: bound to driver %q, not to %q: see the kernel's log on the node", device, fn.Driver, driver)
	}
	return err
}

// set writes an attribute. An empty text clears the attribute.
func (d *Devices) set(name, text string) error {
	if err := d.write(name, text+"\n"); err != nil {
		return fmt.Errorf("write %q: %w", text, err)
	}
	return nil
}

// unbind unbinds a driver. vfio-pci, and a driver of RDMA that cannot disassociate its users, wait until no process has
// the function open (drivers/vfio/vfio_main.c, vfio_unregister_group_dev; drivers/infiniband/core/uverbs_main.c,
// ib_uverbs_remove_one): that it returns proves that nobody has.
func (d *Devices) unbind(device, driver string) error {
	numbers, unknown := d.sys.NodeNumbers("pci", device)
	return d.step(device, func() error { return d.set("bus/pci/drivers/"+driver+"/unbind", device) }, func() string {
		text := "its driver does not release it: a process still has it open"
		holders, err := d.links.Holders(numbers)
		if err = cmp.Or(unknown, err); err != nil {
			return text + fmt.Sprintf("; which one is unknown: %v", err)
		}
		if holders != nil {
			text += fmt.Sprint(": ", holders)
		}
		return text
	})
}

// A step is a write to the driver of a function. During it the kernel holds the lock of the device, so that reading or
// writing driver_override or probing the device would block.
type step struct {
	done chan error
	late func() string // why the kernel may not have answered
}

// patience limits the wait for the kernel. The step goes on afterwards.
const patience = 5 * time.Second

// step begins a step, and waits for its end.
func (d *Devices) step(device string, do func() error, late func() string) error {
	s := &step{make(chan error, 1), late}
	d.steps.Store(device, s)
	go func() { s.done <- do() }()
	return d.settled(device)
}

// settled waits for the end of a step of a function, which an earlier attempt may have begun.
func (d *Devices) settled(device string) error {
	begun, ok := d.steps.Load(device)
	if !ok {
		return nil
	}
	s := begun.(*step)
	select {
	case err := <-s.done:
		d.steps.Delete(device)
		return err
	case <-time.After(patience):
		return fmt.Errorf("%s: %s", device, s.late())
	}
}
