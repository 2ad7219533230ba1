// Package storetest provides full and read-only disks, and busy locks, for tests.
package storetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Disk is a tmpfs for one test.
type Disk struct {
	Dir string
	t   *testing.T
}

// Mount mounts a disk with that number of inodes, including the root. The test must be in a mount namespace of
// package linktest, and must close its files before it ends.
func Mount(t *testing.T, inodes int) Disk {
	t.Helper()
	d := Disk{t.TempDir(), t}
	d.mount("tmpfs", 0, fmt.Sprint("size=1m,mode=755,nr_inodes=", inodes))
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

// Fill uses up all inodes except left, until the returned function is called.
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

// Lock locks a file or directory as another process would. Closing the file unlocks it.
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
