// Package safefiletest is for tests of what root keeps on disk: disks that are full or
// read-only, and locks that others hold.
package safefiletest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A Disk is a tmpfs of a test's own.
type Disk struct {
	Dir string
	t   *testing.T
}

// Mount mounts a disk of so many inodes, its root among them, for which the test must be
// in a mount namespace: see package linktest. When the test ends nothing may be open there.
func Mount(t *testing.T, inodes int) Disk {
	t.Helper()
	d := Disk{t.TempDir(), t}
	d.mount("tmpfs", 0, fmt.Sprint("size=1m,nr_inodes=", inodes))
	t.Cleanup(func() {
		if err := syscall.Unmount(d.Dir, 0); err != nil {
			t.Error(err)
		}
	})
	return d
}

// ReadOnly makes the disk read-only, or writable again.
func (d Disk) ReadOnly(is bool) {
	d.t.Helper()
	var flags uintptr = syscall.MS_REMOUNT
	if is {
		flags |= syscall.MS_RDONLY
	}
	d.mount("", flags, "")
}

func (d Disk) mount(source string, flags uintptr, options string) {
	d.t.Helper()
	if err := syscall.Mount(source, d.Dir, "tmpfs", flags, options); err != nil {
		d.t.Fatal(err)
	}
}

// Fill leaves so many inodes free, until the function that it returns is called.
func (d Disk) Fill(left int) (empty func()) {
	d.t.Helper()
	path := func(n int) string { return filepath.Join(d.Dir, fmt.Sprint("fill", n)) }
	n := 0
	for ; ; n++ {
		err := os.Symlink("x", path(n))
		if errors.Is(err, syscall.ENOSPC) {
			break
		} else if err != nil {
			d.t.Fatal(err)
		}
	}
	remove := func(all int) {
		for ; n > 0 && all > 0; all-- {
			n--
			if err := os.Remove(path(n)); err != nil {
				d.t.Error(err)
			}
		}
	}
	remove(left)
	return func() { remove(n) }
}

// Lock locks a file, or a directory, as another process would; to close it unlocks it.
func Lock(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
