package custody

import (
	"fmt"
	"strings"
	"time"
)

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

// unbind takes a function from its driver.
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
