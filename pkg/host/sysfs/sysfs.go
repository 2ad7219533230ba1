// Package sysfs reads facts about PCI functions, VFs, auxiliary devices (SFs), vDPA and virtio devices from /sys.
// Only [Writer] writes.
//
// A lookup by name takes the same time for any number of VFs on the node, unless its comment says otherwise. Lists
// such as [FS.Functions] read every device of the node. A missing value is reported by a nil pointer or a false ok, see [Absent]; an error means that reading failed.
//
// Of the directories of a device, net/, and infiniband/ in RDMA's exclusive mode, show only the network namespace in
// which sysfs was mounted. If they are empty, the device may still have interfaces in another namespace.
package sysfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"devinfo-cni.io/devinfo/pci"
)

// FS is one sysfs: the running machine's or a captured one.
type FS struct{ fsys fs.FS }

// Open opens the sysfs mounted at dir, normally /sys. It lets the kernel follow links. os.Root would follow
// them itself, with one system call for every path element.
func Open(dir string) (*FS, error) {
	if stat, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("sysfs: %w", err)
	} else if !stat.IsDir() {
		return nil, fmt.Errorf("sysfs: %s: %w", dir, syscall.ENOTDIR)
	}
	return &FS{os.DirFS(dir)}, nil
}

// New wraps a file system rooted at /sys, which must support links (fs.ReadLinkFS).
func New(fsys fs.FS) *FS { return &FS{fsys} }

// Files returns the underlying file system, rooted at /sys.
func (f *FS) Files() fs.FS { return f.fsys }

// Absent reports whether err means that the file does not exist, or that its driver has no value.
func Absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENODEV) ||
		errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP)
}

// isName reports whether name can be a directory entry. Without the length check, a long name from a
// configuration would cause an error (ENAMETOOLONG) instead of being absent.
func isName(name string) bool {
	const maxName = 255
	return fs.ValidPath(name) && name != "." && !strings.Contains(name, "/") && len(name) <= maxName
}

// A Device is a directory of the device tree, either a [Function] or an [Auxiliary] device.
type Device interface{ at() string }

// device returns the directory of a device on a bus, "devices/pci0000:00/…". The link below bus/ is the only
// link on the path. Its target is canonical, so it can be joined as text.
func (f *FS) device(bus, name string) *dir {
	d := f.in(path.Join("bus", bus, "devices"))
	target, ok := "", false
	if isName(name) {
		target, ok = read(d, fs.ReadLink, name)
	}
	d.at, d.gone = path.Join(d.at, target), !ok
	return d
}

// known converts an absent value to ok = false without an error.
func known[T any](value T, err error) (T, bool, error) {
	if Absent(err) {
		return *new(T), false, nil
	}
	return value, err == nil, err
}

// Object identifies a kernel device among all devices since boot.
type Object struct {
	ID    string // bus and name: "pci-0000:01:10.6", "auxiliary-mlx5_core.sf.4", "vdpa-vdpa0"
	Inode uint64 // inode of its directory in /sys, see [FS.Inode]; 0 = unknown
}

func ID(bus, name string) string { return bus + "-" + name }

// Lineage returns the named device, followed by the devices that contain it: a vDPA device's SF, the PCI
// function of either, and a VF's PF. The name is a PCI address, or the name of a device on the auxiliary or
// vDPA bus. Lineage returns nil for a missing device or any other name.
func (f *FS) Lineage(name string) (line []Object, err error) {
	for name != "" {
		bus, at, above, err := f.find(name)
		if d := f.in(at); err == nil && at != "" {
			line = append(line, Object{ID(bus, path.Base(at)), d.inode()})
			err = d.err
		}
		if err != nil {
			return nil, err
		}
		name = above
	}
	return line, nil
}

// find returns the bus and the directory of a device that [FS.Lineage] lists, and the name of the one that contains it. An
// auxiliary device without a place in the line has no directory.
func (f *FS) find(name string) (bus, at, above string, err error) {
	text := func(a *pci.Address) string {
		if a == nil {
			return ""
		}
		return a.String()
	}
	if a, err := pci.Parse(name); err == nil {
		fn, _, err := f.PCI(a)
		return "pci", fn.dir, text(fn.PF), err
	}
	if v, ok, err := f.VDPA(name); ok || err != nil {
		return "vdpa", v.dir, cmp.Or(v.SF, text(v.PCI)), err
	}
	aux, _, err := f.Auxiliary(name)
	if aux.IsSF() {
		at = aux.dir
	}
	return "auxiliary", at, text(aux.PCI), err
}

// DeviceAt returns the name, for [FS.Lineage], of the innermost device that an absolute path below /sys leads into. It
// removes ".." as text first, as package filepath does, and then follows links. The name is "" if the path does not exist,
// or belongs to no such device. ok is false if the path leads to something else than the devices of /sys/devices.
func (f *FS) DeviceAt(name string) (device string, ok bool, err error) {
	below, ok := strings.CutPrefix(path.Clean(name), "/sys/")
	at, links := "", 0
	const mostLinks = 40 // the kernel's limit
	for rest := strings.Split(below, "/"); ok && len(rest) > 0; {
		next := path.Join(at, rest[0])
		target, isLink, err := known(fs.ReadLink(f.fsys, next))
		if err != nil {
			return "", false, err
		}
		if at, rest = next, rest[1:]; isLink {
			links++
			ok = links <= mostLinks
			at, rest = "", append(strings.Split(path.Join(path.Dir(next), target), "/"), rest...)
		}
	}
	if !ok {
		return "", false, nil
	}
	if _, exists, err := known(fs.Stat(f.fsys, at)); !exists || err != nil {
		return "", true, err
	}
	if !strings.HasPrefix(at, "devices/") {
		return "", false, nil
	}
	for ; at != "."; at = path.Dir(at) {
		if line, err := f.Lineage(path.Base(at)); len(line) > 0 || err != nil {
			return path.Base(at), true, err
		}
	}
	return "", true, nil
}
