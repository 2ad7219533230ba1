package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"devinfo-cni.io/devinfo/atomicfile"
)

// Write atomically replaces the content of the file, or a symbolic link with that name. Concurrent writers of
// one name wait for each other. A killed writer leaves at most a temporary file; the next Write or Remove of
// the same name removes it.
func (d *Dir) Write(name string, data []byte) error {
	if err := check(name); err != nil {
		return err
	}
	if err := atomicfile.CheckSize(d.Path(name), len(data), limit); err != nil {
		return err
	}
	root, err := d.make()
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := atomicfile.Replace(root, name, func(temp *os.File) error {
		if _, err := temp.Write(data); err != nil {
			return err
		}
		return temp.Chmod(fileMode)
	})
	if err != nil {
		return d.wrap(name, "write", err)
	}
	return f.Close() // releases the lock
}

// Remove removes the file or symbolic link with that name, and the temporary file of a killed writer. It
// succeeds if the file or the directory does not exist.
func (d *Dir) Remove(name string) error {
	if err := check(name); err != nil {
		return err
	}
	root, err := d.openExisting()
	if root == nil {
		return err
	}
	defer root.Close()
	stat, err := root.Lstat(name)
	if err == nil && stat.IsDir() { // root.Remove would remove an empty one
		return fmt.Errorf("%s: remove: %w", d.Path(name), syscall.EISDIR)
	}
	if err == nil {
		err = root.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.wrap(name, "remove", err)
	}
	if _, err := atomicfile.RemoveLeftover(root, name); err != nil {
		return d.wrap(name, "remove temporary file", err)
	}
	return nil
}

// Sweep removes the temporary files of dead writers and calls removed with the name of each. A running writer
// holds a lock on its file, so Sweep keeps it.
func (d *Dir) Sweep(removed func(name string)) error {
	root, err := d.openExisting()
	if root == nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	return errors.Join(err, atomicfile.SweepLeftovers(root, entries, removed))
}
