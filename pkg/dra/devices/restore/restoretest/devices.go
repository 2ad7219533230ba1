package restoretest

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/process"
	"devinfo-cni.io/pkg/host/settings"
)

// unbind simulates a write to drivers/*/unbind. It removes the interface, even from a pod.
func (k *Kernel) unbind(w *world, device, driver string) error {
	at := k.path("sys/bus/pci/devices", device, "driver")
	bound, err := os.Readlink(at)
	if err != nil || filepath.Base(bound) != driver {
		return syscall.ENODEV
	}
	if i := w.of(device); i != nil && driver != vfio {
		if i.Netns == "" {
			if err := k.hide(i); err != nil {
				return err
			}
		}
		i.Netns = unmade
	}
	return os.Remove(at)
}

// unmade is the Netns of an interface that its driver has not created.
const unmade = "unmade"

// probe simulates a write to drivers_probe. The driver of the device, if there is one, creates a new interface.
func (k *Kernel) probe(w *world, device string) error {
	dir := k.path("sys/bus/pci/devices", device)
	override, err := os.ReadFile(filepath.Join(dir, "driver_override"))
	if err != nil {
		return err
	}
	driver := strings.TrimSpace(string(override))
	if driver == "(null)" {
		driver = w.Drivers[device]
	}
	if _, err := os.Stat(k.path("sys/bus/pci/drivers", driver)); err != nil || driver == "" {
		return nil
	}
	if err := os.Symlink("../bus/pci/drivers/"+driver, filepath.Join(dir, "driver")); err != nil {
		return syscall.EBUSY
	}
	i := w.of(device)
	if i == nil || driver != w.Drivers[device] {
		return nil
	}
	w.Made++
	i.Settings, i.Uppers = madeSettings(), nil
	i.Name, i.MTU, i.Netns, i.MAC, i.PFMAC = w.freeName(fmt.Sprintf("new%d", w.Made)), 1500, "", fmt.Sprintf("0e:00:00:00:00:%02x", w.Made%256), ""
	if vf := w.VFs[device]; vf != nil && vf.MAC != "" {
		i.MAC, i.PFMAC = vf.MAC, vf.MAC
	}
	return k.show(i)
}

// Move simulates how a CNI plugin moves the interface of a device at ADD or, with netns "", at DEL. It only changes
// the name. It does nothing if the interface is not in the network namespace from. Moving it to the host fails if the
// host has one of its altnames (net/core/dev.c, __dev_change_net_namespace).
func (k *Kernel) Move(device, from, netns, name string) error {
	return k.change(func(w *world) error {
		i := w.of(device)
		switch {
		case i == nil || i.Netns != from || i.Netns == netns:
			return nil
		case w.Ended[netns]:
			return fmt.Errorf("%s: %w", netns, link.ErrNoNetns)
		case netns == "" && slices.ContainsFunc(i.altNames(), func(a string) bool { return w.holder(a) != nil }):
			return syscall.EEXIST
		case i.Netns == "":
			if err := k.hide(i); err != nil {
				return err
			}
		}
		if netns != "" {
			i.Name, i.Netns = name, netns
			return nil
		}
		i.Name, i.Netns = w.freeName(name), ""
		return k.show(i)
	})
}

// EndNetns ends a network namespace. Its interfaces move to the host unchanged.
func (k *Kernel) EndNetns(netns string) error {
	return k.change(func(w *world) (err error) {
		w.Ended[netns] = true
		for _, i := range w.Links {
			if i.Netns == netns {
				i.setAltNames(slices.DeleteFunc(i.altNames(), func(a string) bool { return w.holder(a) != nil }))
				i.Name, i.Netns = w.freeName(i.Name), ""
				err = errors.Join(err, k.show(i))
			}
		}
		return err
	})
}

// Use simulates a pod that sets MTU and MAC. The MAC does not change if the PF has one for the VF.
func (k *Kernel) Use(device string, mtu int, mac string) error {
	return k.change(func(w *world) error {
		i := w.of(device)
		if i == nil || i.Netns == unmade {
			return nil
		}
		i.MTU = mtu
		if vf := w.VFs[device]; vf == nil || vf.MAC == "" {
			i.MAC = mac
		}
		return nil
	})
}

// ConfigureVF simulates how sriov-cni sets a VF through its PF: the VF gets the MAC and cannot change it.
func (k *Kernel) ConfigureVF(device string, to settings.VF) error {
	return k.change(func(w *world) error { w.set(device, to); return nil })
}

func (w *world) set(device string, to settings.VF) {
	*w.VFs[device] = to
	if i := w.of(device); i != nil && to.MAC != "" {
		i.MAC = to.MAC
	}
}

// Configure simulates a pod that changes settings of its interface; "" removes one. Altnames are names in the pod's namespace.
func (k *Kernel) Configure(device string, to settings.Dump) error {
	return k.change(func(w *world) error {
		if i := w.of(device); i != nil && i.Netns != unmade && i.Netns != "" {
			maps.Copy(i.Settings, to)
			maps.DeleteFunc(i.Settings, func(_, value string) bool { return value == "" })
		}
		return nil
	})
}

// Settings implements restore.Links.
func (k *Kernel) Settings(of link.Interface) (s settings.Dump, err error) {
	err = k.on(of, func(_ *world, i *iface) error {
		s = maps.Clone(i.Settings)
		return nil
	})
	return s, err
}

// on calls f with an interface on the host.
func (k *Kernel) on(of link.Interface, f func(w *world, i *iface) error) error {
	return k.change(func(w *world) error {
		for _, i := range w.Links {
			if i.Index == of.Index && i.Netns == "" {
				return f(w, i)
			}
		}
		return link.ErrNoInterface
	})
}

// Set implements restore.Links. Nobody can set the settings of a newer kernel.
func (k *Kernel) Set(of link.Interface, setting string, to settings.Dump) error {
	if k.Spares && !slices.Contains(restore.SettingNames(), setting) {
		k = Open(filepath.Dir(k.dir))
	}
	value := to[setting]
	if setting == settings.AltNames {
		return k.setAltNames(of, strings.Fields(value))
	}
	return k.set(of, func(w *world, i *iface) error {
		switch raw, _ := hex.DecodeString(value); {
		case strings.HasPrefix(setting, "rtnetlink-"):
			return syscall.EOPNOTSUPP
		case setting == settings.Name:
			return k.rename(w, i, value)
		case setting == settings.MTU:
			i.MTU = int(binary.NativeEndian.Uint32(raw))
		case setting == settings.MAC && w.isLocked(i, net.HardwareAddr(raw).String()):
			return syscall.EPERM
		case setting == settings.MAC:
			i.MAC = net.HardwareAddr(raw).String()
		case value == "":
			delete(i.Settings, setting)
		default:
			i.Settings[setting] = value
		}
		return nil
	})
}

// setAltNames removes unwanted altnames, and then adds missing ones, each in one change.
func (k *Kernel) setAltNames(of link.Interface, want []string) error {
	var now []string
	err := k.on(of, func(_ *world, i *iface) error { now = i.altNames(); return nil })
	for _, name := range slices.Concat(now, want) {
		if wanted := slices.Contains(want, name); !wanted || !slices.Contains(now, name) {
			err = errors.Join(err, k.SetAltName(of, name, wanted))
		}
	}
	return err
}

// SetAltName simulates udev, which adds or removes an altname.
func (k *Kernel) SetAltName(of link.Interface, altName string, present bool) error {
	return k.set(of, func(w *world, i *iface) error {
		names := i.altNames()
		switch {
		case present && w.holder(altName) != nil:
			return syscall.EEXIST
		case present:
			i.setAltNames(append(names, altName))
		case !slices.Contains(names, altName):
			return syscall.ENOENT
		default:
			i.setAltNames(slices.DeleteFunc(names, func(a string) bool { return a == altName }))
		}
		return nil
	})
}

func (k *Kernel) set(of link.Interface, f func(w *world, i *iface) error) error {
	if err := k.fault(); err != nil {
		return err
	}
	return k.on(of, f)
}

// Interface implements restore.Links.
func (k *Kernel) Interface(_, name string) (found link.Interface, err error) {
	err = k.change(func(w *world) error {
		i := w.holder(name)
		if i == nil {
			return fmt.Errorf("interface %q: %w", name, link.ErrNoInterface)
		}
		mac, _ := net.ParseMAC(i.MAC)
		found = link.Interface{Name: i.Name, Index: i.Index, MTU: i.MTU, MAC: mac, Parent: i.Device}
		return nil
	})
	return found, err
}

// VF implements restore.Links.
func (k *Kernel) VF(pf string, index int) (vf *settings.VF, err error) {
	err = k.change(func(w *world) error {
		device, err := k.virtfn(w, pf, index)
		if err != nil {
			return err
		}
		vf = w.VFs[device]
		return nil
	})
	return vf, err
}

func (k *Kernel) virtfn(w *world, pf string, index int) (string, error) {
	target, err := os.Readlink(k.path("sys/bus/pci/devices", w.PFs[pf], fmt.Sprintf("virtfn%d", index)))
	return filepath.Base(target), err
}

func (k *Kernel) rename(w *world, i *iface, name string) error {
	if w.holder(name) != nil {
		return syscall.EEXIST
	}
	if err := k.hide(i); err != nil {
		return err
	}
	i.Name = name
	return k.show(i)
}

// Rename simulates udev, which renames an interface.
func (k *Kernel) Rename(of link.Interface, name string) error {
	return k.Set(of, settings.Name, settings.Dump{settings.Name: name})
}

// isLocked reports whether an interface cannot change its MAC, because its PF has a MAC for it or had one when the
// driver was bound. A real igbvf interface that is down then returns EADDRNOTAVAIL until it is bound again.
func (w *world) isLocked(i *iface, mac string) bool {
	vf := w.VFs[i.Device]
	return vf != nil && (vf.MAC != "" && vf.MAC != mac || vf.MAC == "" && i.PFMAC != "")
}

// SetVF implements restore.Links.
func (k *Kernel) SetVF(pf string, index int, setting string, to settings.VF) error {
	if err := k.fault(); err != nil {
		return err
	}
	return k.change(func(w *world) error {
		device, err := k.virtfn(w, pf, index)
		if err != nil {
			return err
		}
		vf := *w.VFs[device]
		switch setting {
		case settings.VFMAC:
			vf.MAC = to.MAC
		case settings.VFVLAN:
			vf.VLAN, vf.QoS, vf.VLANProto = to.VLAN, to.QoS, to.VLANProto
		case settings.VFTrust:
			vf.Trust = to.Trust
		case settings.VFSpoofCheck:
			vf.SpoofCheck = to.SpoofCheck
		case settings.VFLinkState:
			vf.LinkState = to.LinkState
		case settings.VFRate:
			vf.MinRate, vf.MaxRate = to.MinRate, to.MaxRate
		case settings.VFGUID:
			vf.NodeGUID, vf.PortGUID = to.NodeGUID, to.PortGUID
		}
		w.set(device, vf)
		return nil
	})
}

// Stack simulates a pod that puts an interface on that of its device. If the name begins with "hidden", it is in a
// network namespace that nobody can name.
func (k *Kernel) Stack(device, upper string) error {
	return k.change(func(w *world) error {
		if i := w.of(device); i != nil && i.Netns != unmade {
			i.Uppers = append(i.Uppers, upper)
		}
		return nil
	})
}

// Stacked implements restore.Links. Only a macvlan shows on the interface below it.
func (k *Kernel) Stacked(of link.Interface, everywhere bool) (found []string, err error) {
	err = k.on(of, func(_ *world, i *iface) error {
		for _, upper := range i.Uppers {
			if everywhere || strings.Contains(upper, "macvlan") {
				found = append(found, upper)
			}
		}
		return nil
	})
	return found, err
}

// Unstack implements restore.Links.
func (k *Kernel) Unstack(of link.Interface) (left []string, err error) {
	err = k.on(of, func(_ *world, i *iface) error {
		i.Uppers = slices.DeleteFunc(i.Uppers, func(name string) bool { return !strings.HasPrefix(name, "hidden") })
		left = i.Uppers
		return nil
	})
	return left, err
}

// Holders implements restore.Links. No process of the simulation has a device node open.
func (k *Kernel) Holders([]string) ([]process.Holder, error) { return nil, nil }
