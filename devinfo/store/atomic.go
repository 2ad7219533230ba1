package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"devinfo-cni.io/devinfo/atomicfile"
)

// Write atomically replaces the content of the file, or a symbolic link of that
// name. Writers of one name wait for each other. A killed writer leaves at most
// the temporary file, which the next Write or Remove of that name removes.
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
	return f.Close() // and with it the lock
}

// Remove removes a file, or a symbolic link, and a temporary file that a killed
// writer left. It succeeds if the file, or the directory, is gone already.
func (d *Dir) Remove(name string) error {
	if err := check(name); err != nil {
		return err
	}
	root, err := d.openIfThere()
	if root == nil {
		return err
	}
	defer root.Close()
	stat, err := root.Lstat(name)
	if err == nil && stat.IsDir() { // which root.Remove would remove, if empty
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

// Sweep removes the temporary files of writers that have died, and calls removed with
// the name of each. A writer that lives holds a lock on its file.
func (d *Dir) Sweep(removed func(name string)) error {
	root, err := d.openIfThere()
	if root == nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	return errors.Join(err, atomicfile.SweepLeftovers(root, entries, removed))
}
