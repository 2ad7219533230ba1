// Package restoretest is what package custody needs of a kernel: the /sys and the interfaces
// of a captured host, which react to what is done to them. Unbinding a driver removes the
// interface, another driver or an administrative MAC is the function's from then on, and an
// interface comes back from a network namespace as it was there.
//
// All of it is in files of one directory, so that processes that a test kills share it.
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

	"devinfo-cni.io/pkg/capturefile"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

// Kernel is that of one node.
type Kernel struct {
	// Fault is asked before each change; an error is the kernel's answer. nil = none.
	Fault func() error
	dir   string
}

// world is what of the node is not in /sys.
type world struct {
	Links   []*iface
	VFs     map[string]*link.VFSettings // by address: what their PFs have set
	Drivers map[string]string           // by address: the driver that knows the function
	PFs     map[string]string           // by interface: the address of a PF
	Made    int                         // interfaces so far
	Ended   map[string]bool             // network namespaces
}

// iface is an interface, wherever it is.
type iface struct {
	Name, MAC, Netns string // Netns "" = the host's
	MTU              int
	Device           string // "0000:01:10.0", "mlx5_core.sf.4"; "" = software
	Dir              string // of interfaces, below /sys: "devices/.../net"; "" = it never moves
	PFMAC            string // the administrative MAC that it was bound with; "" = none
	link.Settings
}

// madeSettings are those of an interface that its driver has just made.
var madeSettings = link.Settings{TxQueue: 1000}

// Make gives a captured host, one of testdata/hosts, to a kernel in a directory, which may
// have none yet.
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
	w := &world{VFs: map[string]*link.VFSettings{}, Drivers: map[string]string{}, PFs: map[string]string{}, Ended: map[string]bool{}}
	if err := w.read(sysfs.New(host.Sys()), host.File("netlink/ip-link.json"), k); err != nil {
		return nil, err
	}
	return k, k.save(w)
}

// Open is the kernel that was made in a directory.
func Open(dir string) *Kernel { return &Kernel{dir: filepath.Join(dir, "kernel")} }

// Sys is its /sys.
func (k *Kernel) Sys() *sysfs.FS { return sysfs.New(os.DirFS(k.path("sys"))) }

// Host takes custody of its devices.
func (k *Kernel) Host() *restore.Devices { return restore.New(k.Sys(), k.Write, k) }

func (k *Kernel) path(elements ...string) string {
	return filepath.Join(append([]string{k.dir}, elements...)...)
}

// copySys copies a tree; a file that cannot be read is left out.
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

// read takes in functions and interfaces.
func (w *world) read(sys *sysfs.FS, links []byte, k *Kernel) error {
	var records []link.InterfaceRecord
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
			w.VFs[a] = &link.VFSettings{VLANProto: 0x8100, SpoofCheck: true}
		}
		if fn.Driver != vfio {
			w.Drivers[a] = fn.Driver
		}
		if err := os.WriteFile(k.path("sys/bus/pci/devices", a, "driver_override"), []byte("(null)\n"), 0o644); err != nil {
			return err
		}
	}
	for _, r := range records {
		i := &iface{Name: r.Name, MAC: r.Address, MTU: r.MTU, Settings: madeSettings}
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

// place says whose an interface is, and where. One on virtio is its PCI function's if
// virtio-pci drives that.
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

// Between calls f between two changes: a process that f kills has finished its system calls, as
// any process has.
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

// change calls f with the world, which is written if f succeeds. One is changed at a time.
func (k *Kernel) change(f func(w *world) error) error {
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

// on the host, by name; nil = there is none.
func (w *world) named(name string) *iface {
	for _, i := range w.Links {
		if i.Name == name && i.Netns == "" {
			return i
		}
	}
	return nil
}

// holder is the interface on the host with that name or altname; nil = none.
func (w *world) holder(name string) *iface {
	for _, i := range w.Links {
		if i.Netns == "" && (i.Name == name || slices.Contains(i.AltNames, name)) {
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

// freeName is the one asked for, or else the kernel's.
func (w *world) freeName(name string) string {
	for w.holder(name) != nil {
		w.Made++
		name = fmt.Sprintf("dev%d", w.Made)
	}
	return name
}

// show puts an interface into /sys, hide takes it out.
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

// Write implements what [sysfs.Writer] gives.
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
