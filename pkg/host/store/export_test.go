package store

import "syscall"

// LockableOn is Lockable for a directory on a file system of that type.
func LockableOn(dir string, fileSystem int64) error {
	return lockable(dir, syscall.Statfs_t{Type: fileSystem})
}
