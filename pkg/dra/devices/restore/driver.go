package restore

import (
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
	set := func(name, text string) {
		if err == nil {
			err = d.set(name, text)
		}
	}
	if fn.Driver != driver {
		set(attribute, driver)
		if err == nil && fn.Driver != "" {
			err = d.unbind(device, fn.Driver)
		}
		if driver != "" {
			set("bus/pci/drivers_probe", device)
		}
	}
	if set(attribute, override); err != nil {
		return err
	}
	fn, err = d.fn(device)
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

func (d *Devices) unbind(device, driver string) error {
	done := make(chan error, 1)
	d.unbinding.Store(device, done)
	go func() { done <- d.set("bus/pci/drivers/"+driver+"/unbind", device) }()
	return d.unbound(device)
}

// unbound waits for the end of an unbind call, which an earlier attempt may have begun. During the call the kernel
// holds the lock of the device, so reading or writing driver_override or probing the device would block. vfio-pci waits
// until no process has the function open (drivers/vfio/vfio_main.c, vfio_unregister_group_dev).
func (d *Devices) unbound(device string) error {
	done, ok := d.unbinding.Load(device)
	if !ok {
		return nil
	}
	select {
	case err := <-done.(chan error):
		d.unbinding.Delete(device)
		return err
	case <-time.After(5 * time.Second):
		return fmt.Errorf("%s: its driver does not release it: a process still has it open", device)
	}
}
