// Package storetest provides full and read-only disks, and busy locks, for tests.
package storetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"devinfo-cni.io/test/difftest"
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
	difftest.Must(t, syscall.Mount("tmpfs", d.Dir, "tmpfs", 0, fmt.Sprint("size=1m,mode=755,nr_inodes=", inodes)))
	t.Cleanup(func() { difftest.Must(t, syscall.Unmount(d.Dir, 0)) })
	return d
}

// ReadOnly makes the disk read-only, or writable again.
func (d Disk) ReadOnly(is bool) {
	d.t.Helper()
	var flags uintptr = syscall.MS_REMOUNT
	if is {
		flags |= syscall.MS_RDONLY
	}
	difftest.Must(d.t, syscall.Mount("", d.Dir, "tmpfs", flags, ""))
}

// Fill uses up all inodes except left, until the returned function is called.
func (d Disk) Fill(left int) (empty func()) {
	d.t.Helper()
	var list []string
	for full := false; !full; {
		path := filepath.Join(d.Dir, fmt.Sprint("fill", len(list)))
		err := os.Symlink("x", path)
		if full = errors.Is(err, syscall.ENOSPC); !full {
			difftest.Must(d.t, err)
			list = append(list, path)
		}
	}
	remove := func(n int) {
		for ; n > 0 && len(list) > 0; n-- {
			difftest.Must(d.t, os.Remove(list[0]))
			list = list[1:]
		}
	}
	remove(left)
	return func() { remove(len(list)) }
}

// Lock locks a file or directory as another process would. Closing the file unlocks it.
func Lock(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	difftest.Must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}
