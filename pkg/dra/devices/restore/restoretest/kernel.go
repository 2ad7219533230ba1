// Package restoretest simulates the kernel for package restore: the /sys and the interfaces of a captured host, with
// the effects of changes. Unbinding a driver removes the interface. A function keeps a new driver and an
// administrative MAC. An interface keeps its settings when it returns from a network namespace.
//
// The state is in files below one directory, so that it survives processes that a test kills.
package restoretest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/listing"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Kernel is the simulated kernel of one node.
type Kernel struct {
	// Fault is called before each change; the change fails with its error. nil = no faults.
	Fault func() error
	// Spares is true if Fault is not called for settings that Restore tries twice and then leaves as they are.
	Spares bool
	// Before is called before each access to the state, except its own; the access fails with its error. nil = not called.
	Before func() error
	dir    string
}

// world is the state of the node that /sys does not contain.
type world struct {
	Links   []*iface
	VFs     map[string]*settings.VF // settings on the PF, by address of the VF
	Drivers map[string]string       // driver of the function, by address
	PFs     map[string]string       // address of the PF, by interface
	Made    int                     // number of created interfaces
	Ended   map[string]bool         // network namespaces
}

// iface is an interface in any network namespace.
type iface struct {
	Name, MAC, Netns string // Netns "" = the host
	MTU, Index       int
	Device           string // "0000:01:10.0", "mlx5_core.sf.4"; "" = no hardware
	Dir              string // directory of its interfaces below /sys, "devices/.../net"; "" = it never moves
	PFMAC            string // MAC on its PF when the driver was bound; "" = none
	Settings         settings.Dump
	Uppers           []string // interfaces on it; those that begin with "hidden" are in a namespace without a name
}

func (i *iface) altNames() []string { return strings.Fields(i.Settings[settings.AltNames]) }

func (i *iface) setAltNames(names []string) {
	slices.Sort(names)
	if i.Settings[settings.AltNames] = strings.Join(names, " "); len(names) == 0 {
		delete(i.Settings, settings.AltNames)
	}
}

// madeSettings are the settings of a new interface.
func madeSettings() settings.Dump {
	return settings.Dump{"txqueuelen": "e8030000", "multicast": "on", "features": "05", "rings": "05", "ethtool-99": "05"}
}

// Make creates a kernel with a captured host, such as one in testdata/hosts, in a directory. It creates the
// directory if necessary.
func Make(dir string, captured []byte) (*Kernel, error) {
	host, err := capturefile.Parse(captured)
	if err != nil {
		return nil, err
	}
	k := Open(dir)
	if err := os.MkdirAll(k.path("stash"), 0o755); err != nil {
		return nil, err
	}
	if err := copySys(host.Sys(), k.path("sys")); err != nil {
		return nil, err
	}
	w := &world{VFs: map[string]*settings.VF{}, Drivers: map[string]string{}, PFs: map[string]string{}, Ended: map[string]bool{}}
	if err := w.read(sysfs.New(host.Sys()), host.File("netlink/ip-link.json"), k); err != nil {
		return nil, err
	}
	return k, k.save(w)
}

// Open returns the kernel that Make created in a directory.
func Open(dir string) *Kernel { return &Kernel{dir: filepath.Join(dir, "kernel")} }

// Sys returns the simulated /sys.
func (k *Kernel) Sys() *sysfs.FS { return sysfs.New(os.DirFS(k.path("sys"))) }

// Host returns the devices of the kernel, for the code under test.
func (k *Kernel) Host() *restore.Devices { return restore.New(k.Sys(), k.Write, k) }

func (k *Kernel) path(elements ...string) string {
	return filepath.Join(append([]string{k.dir}, elements...)...)
}

// copySys copies a tree without its unreadable files.
func copySys(from fs.FS, to string) error {
	return fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := filepath.Join(to, name)
		switch {
		case d.IsDir():
			return os.MkdirAll(at, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			target, err := fs.ReadLink(from, name)
			if err != nil {
				return err
			}
			return os.Symlink(target, at)
		}
		data, err := fs.ReadFile(from, name)
		if err != nil {
			return nil
		}
		return os.WriteFile(at, data, 0o644)
	})
}

// read adds the functions and interfaces.
func (w *world) read(sys *sysfs.FS, links []byte, k *Kernel) error {
	var records []listing.Interface
	if err := json.Unmarshal(links, &records); err != nil {
		return err
	}
	functions, err := sys.Functions()
	if err != nil {
		return err
	}
	for _, fn := range functions {
		a := fn.Address.String()
		if fn.PF != nil {
			w.VFs[a] = &settings.VF{VLANProto: 0x8100, SpoofCheck: true}
		}
		if fn.Driver != vfio {
			w.Drivers[a] = fn.Driver
		}
		if err := os.WriteFile(k.path("sys/bus/pci/devices", a, "driver_override"), []byte("(null)\n"), 0o644); err != nil {
			return err
		}
	}
	for _, r := range records {
		i := &iface{Name: r.Name, MAC: r.Address, MTU: r.MTU, Index: r.Index, Settings: madeSettings()}
		if err := w.place(i, sys, k); err != nil {
			return err
		}
		if link.Represents(r.PortName) {
			i.Device = ""
		} else if w.VFs[i.Device] == nil {
			w.PFs[r.Name] = i.Device
		}
		w.Links = append(w.Links, i)
	}
	return nil
}

// place sets the device and the directory of an interface. A virtio interface belongs to the PCI function below it
// if virtio-pci is the driver of that function.
func (w *world) place(i *iface, sys *sysfs.FS, k *Kernel) error {
	n, ok, err := sys.Netdev(i.Name)
	if err != nil || !ok || n.Device == "" {
		return err
	}
	target, err := os.Readlink(k.path("sys/class/net", i.Name))
	if err != nil {
		return err
	}
	i.Device, i.Dir = n.Device, filepath.Dir(filepath.Join("class/net", target))
	if v, ok, err := sys.Virtio(n.Device); err != nil {
		return err
	} else if ok && v.PCI != nil && w.Drivers[v.PCI.String()] == "virtio-pci" {
		i.Device = v.PCI.String()
	}
	return nil
}

const vfio = "vfio-pci"

// Between calls f while no change is in progress, so that a process that f kills has finished its system calls, as a
// real process would have.
func (k *Kernel) Between(f func() error) error {
	lock, err := os.OpenFile(k.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	return f()
}

// change calls f with the state, and saves it if f succeeds. It runs one change at a time.
func (k *Kernel) change(f func(w *world) error) error {
	if before := k.Before; before != nil {
		k.Before = nil
		err := before()
		if k.Before = before; err != nil {
			return err
		}
	}
	return k.Between(func() error {
		data, err := os.ReadFile(k.path("world.json"))
		if err != nil {
			return err
		}
		w := new(world)
		if err := json.Unmarshal(data, w); err != nil {
			return err
		}
		if err := f(w); err != nil {
			return err
		}
		return k.save(w)
	})
}

func (k *Kernel) save(w *world) error {
	data, err := json.Marshal(w)
	if err != nil {
		return err
	}
	temporary := k.path("world.new")
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, k.path("world.json"))
}

// holder returns the interface on the host with that name or altname, or nil.
func (w *world) holder(name string) *iface {
	for _, i := range w.Links {
		if i.Netns == "" && (i.Name == name || slices.Contains(i.altNames(), name)) {
			return i
		}
	}
	return nil
}

func (w *world) of(device string) *iface {
	for _, i := range w.Links {
		if i.Device == device {
			return i
		}
	}
	return nil
}

// freeName returns name if it is free, or else a name of the kernel's choice.
func (w *world) freeName(name string) string {
	for w.holder(name) != nil {
		w.Made++
		name = fmt.Sprintf("dev%d", w.Made)
	}
	return name
}

// show adds an interface to /sys; hide removes it.
func (k *Kernel) show(i *iface) error {
	at := filepath.Join(i.Dir, i.Name)
	return errors.Join(
		os.Rename(k.path("stash", i.Device), k.path("sys", at)),
		os.Symlink("../../"+at, k.path("sys/class/net", i.Name)),
	)
}

func (k *Kernel) hide(i *iface) error {
	return errors.Join(
		os.Rename(k.path("sys", i.Dir, i.Name), k.path("stash", i.Device)),
		os.Remove(k.path("sys/class/net", i.Name)),
	)
}

func (k *Kernel) fault() error {
	if k.Fault == nil {
		return nil
	}
	return k.Fault()
}

// Write implements the function of [sysfs.Writer].
func (k *Kernel) Write(name, text string) error {
	if err := k.fault(); err != nil {
		return err
	}
	text = strings.TrimSpace(text)
	return k.change(func(w *world) error {
		driver, isUnbind := strings.CutSuffix(strings.TrimPrefix(name, "bus/pci/drivers/"), "/unbind")
		device, isOverride := strings.CutSuffix(strings.TrimPrefix(name, "bus/pci/devices/"), "/driver_override")
		switch {
		case isOverride:
			if text == "" {
				text = "(null)"
			}
			return os.WriteFile(k.path("sys", name), []byte(text+"\n"), 0o644)
		case isUnbind:
			return k.unbind(w, text, driver)
		case name == "bus/pci/drivers_probe":
			return k.probe(w, text)
		}
		return fmt.Errorf("%s, %s: %w", name, device, fs.ErrNotExist)
	})
}
