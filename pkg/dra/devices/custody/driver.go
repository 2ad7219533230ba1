package custody

import (
	"fmt"
	"strings"
	"time"
)

// MayBind refuses a driver that the kernel has not, and a function that no IOMMU isolates
// from what the host uses: its group may hold nothing else than bridges, and functions that
// are on that driver. Groups have new numbers after a reboot, so none is noted.
func (h *Devices) MayBind(f Former, driver string) error {
	has, err := h.sys.HasDriver(driver)
	if err != nil {
		return err
	}
	if !has {
		return fmt.Errorf("driver: %s: the kernel has no such driver: load the module %s on the node", driver, driver)
	}
	group, others, err := h.Beside(f, driver)
	if err != nil {
		return err
	}
	if group == "" {
		free, err := h.sys.WithoutIOMMU()
		if err == nil && !free {
			err = fmt.Errorf("driver: %s: no IOMMU isolates %s: enable it in the firmware and by a kernel parameter such as intel_iommu=on", driver, f.Device)
		}
		return err
	}
	if others != nil {
		return fmt.Errorf("driver: %s: IOMMU group %s of %s holds %s, too: bind them to %s first, or select a device with a group of its own",
			driver, group, f.Device, strings.Join(others, ", "), driver)
	}
	return nil
}

// Beside names the IOMMU group of a function, and what it holds that is neither a bridge nor on
// that driver.
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

// Bind gives a function to a driver, which alone may have it until [Devices.Restore].
func (h *Devices) Bind(f Former, driver string) error { return h.bind(f.Device, driver, driver) }

// bind gives a function to a driver, "" for none, and leaves it with that driver_override.
// An override goes before what else would decide: the order of drivers, and
// sriov_drivers_autoprobe.
func (h *Devices) bind(device, driver, override string) error {
	attribute := "bus/pci/devices/" + device + "/driver_override"
	fn, err := h.fn(device)
	if err != nil {
		return err
	}
	if fn.Driver != driver {
		if err := h.set(attribute, driver); err != nil {
			return err
		}
		if fn.Driver != "" {
			if err := h.unbind(device, fn.Driver); err != nil {
				return err
			}
		}
		if driver != "" {
			if err := h.set("bus/pci/drivers_probe", device); err != nil {
				return err
			}
		}
	}
	if err := h.set(attribute, override); err != nil {
		return err
	}
	fn, err = h.fn(device)
	if err == nil && fn.Driver != driver {
		err = fmt.Errorf("%s: bound to driver %q, not to %q: see the kernel's log on the node", device, fn.Driver, driver)
	}
	return err
}

// set writes an attribute; empties it if text is "".
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
	h.mu.Lock()
	done := make(chan error, 1)
	h.unbinding[device] = done
	h.mu.Unlock()
	go func() { done <- h.set("bus/pci/drivers/"+driver+"/unbind", device) }()
	return h.unbound(device)
}

// unbound waits for a call of unbind, be it of an earlier try. As long as that is in the
// kernel it holds the lock of the device: whoever reads or writes its driver_override, or
// probes, would hang with it.
func (h *Devices) unbound(device string) error {
	h.mu.Lock()
	done := h.unbinding[device]
	h.mu.Unlock()
	if done == nil {
		return nil
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case err := <-done:
		h.mu.Lock()
		delete(h.unbinding, device)
		h.mu.Unlock()
		return err
	case <-late.C:
		return fmt.Errorf("%s: its driver does not let go of it: a process still has it open", device)
	}
}
