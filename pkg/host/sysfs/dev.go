package sysfs

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Node is a device node.
type Node struct {
	Type         string // "c" or "b"
	Major, Minor int64

	Perm     fs.FileMode // permission bits
	UID, GID uint32      // owner
}

// ReadNode reads the device node at path, which is below /dev. It follows links. If path is not a device node,
// the error contains its mode.
func ReadNode(path string) (Node, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return Node{}, err
	}
	raw, ok := stat.Sys().(*syscall.Stat_t)
	if !ok || stat.Mode()&os.ModeDevice == 0 {
		return Node{}, fmt.Errorf("it has mode %s", stat.Mode())
	}
	n := Node{
		Type: "b", Major: int64(unix.Major(raw.Rdev)), Minor: int64(unix.Minor(raw.Rdev)),
		Perm: stat.Mode().Perm(), UID: raw.Uid, GID: raw.Gid,
	}
	if stat.Mode()&os.ModeCharDevice != 0 {
		n.Type = "c"
	}
	return n, nil
}
