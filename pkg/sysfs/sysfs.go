// Package sysfs is the door to /sys: it reads what the kernel says of PCI
// functions, VFs, auxiliary devices (SFs), vDPA and virtio devices, and nothing
// else. One file per kernel directory. [Writer] alone writes.
//
// Every read asks for one thing by its name; the number of VFs on the node makes no
// difference unless a method says so. Absent, zero and broken are three answers: a pointer
// or ok means "the kernel did not say" (see [Absent]), an error means broken.
//
// Directories below bus/ do not depend on the network namespace, but the net/
// entries of a device (and infiniband/, in RDMA's exclusive mode) belong to the
// namespace of whoever mounted sysfs: an empty one proves nothing.
package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// FS is one sysfs, the machine's own or a captured one.
type FS struct{ fsys fs.FS }

// Open opens the sysfs mounted at dir, normally /sys. Its links are the kernel's and
// are followed by the kernel, wherever they lead: os.Root, which follows them
// itself, takes one system call for every element of every path.
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

// Files is the file system itself, rooted at /sys.
func (f *FS) Files() fs.FS { return f.fsys }

// Absent reports whether err means "the kernel has no such thing": the file does not exist,
// or its driver has no answer.
func Absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENODEV) ||
		errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP)
}

// isName says whether a directory entry can have a name. A longer one than NAME_MAX is the
// configuration's, not the kernel's, and would be an error (ENAMETOOLONG) instead of a
// device that is not there.
func isName(name string) bool {
	const maxName = 255
	return fs.ValidPath(name) && name != "." && !strings.Contains(name, "/") && len(name) <= maxName
}

// A Device is a directory of the device tree: that of a [Function] or an [Auxiliary] device.
type Device interface{ at() string }

// device returns the directory of a device on a bus, "devices/pci0000:00/…". The link
// below bus/ is the only one on the way: what the kernel writes into it is the
// canonical path, so it may be joined as text.
func (f *FS) device(bus, name string) *dir {
	d := f.in(path.Join("bus", bus, "devices"))
	target, ok := "", false
	if isName(name) {
		target, ok = read(d, fs.ReadLink, name)
	}
	d.at, d.gone = path.Join(d.at, target), !ok
	return d
}

// known tells the three answers of a read apart.
func known[T any](value T, err error) (T, bool, error) {
	if Absent(err) {
		return *new(T), false, nil
	}
	return value, err == nil, err
}
