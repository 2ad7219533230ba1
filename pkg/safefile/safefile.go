// Package safefile keeps small files and symbolic links that are root's alone, such as the
// journal of attachments and the state of claims: directories are 0700, files 0600. A file
// is written atomically.
//
// Unlike devinfo/store, whose directory other programs and ordinary users work in too, it
// trusts what is in its directory, and so needs fewer system calls. Existing files can be
// read, locked and removed on a full disk and, where nothing has to change, on a read-only
// one.
package safefile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"devinfo-cni.io/devinfo/atomicfile"
	"devinfo-cni.io/devinfo/store"
)

// ErrNotRegular is the error, to be matched by errors.Is, for anything but a regular file: a
// directory, a symbolic link or a named pipe.
var ErrNotRegular = atomicfile.ErrNotRegular

// limit is the size of a file in bytes. The largest is the journal's entry of an ADD: its
// configuration of 8 MiB, of which the delegates' part may take six times the room and has
// keys added, a result of 10 MB, and two device-info files of 1 MiB.
const limit = 64 << 20

// Dir is a directory. Its methods may be called concurrently, also from several processes.
type Dir struct {
	path    string
	durable bool
}

// Open names a directory by its absolute path; it touches nothing on disk.
func Open(path string) *Dir { return &Dir{filepath.Clean(path), false} }

// OpenDurable is [Open] for files that must outlive a power failure: Write returns once
// the file and its name are on the disk, Remove once the name is off it.
func OpenDurable(path string) *Dir { return &Dir{filepath.Clean(path), true} }

// Path is where the file of that name is; the name is not checked.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// check gives the path of a name, which must be one path element without a leading dot.
func (d *Dir) check(name string) (string, error) {
	if err := atomicfile.CheckDir(d.path); err != nil {
		return "", err
	}
	if err := atomicfile.CheckName(name); err != nil {
		return "", &store.NameError{Name: name, Err: err}
	}
	return d.Path(name), nil
}

// Make makes the directory, and those above it as 0755, where they are missing, whatever
// the umask.
func (d *Dir) Make() error {
	if err := atomicfile.CheckDir(d.path); err != nil {
		return err
	}
	return mkdir(d.path, 0o700)
}

func mkdir(path string, mode fs.FileMode) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err = mkdir(filepath.Dir(path), 0o755); err == nil {
			err = os.Mkdir(path, mode)
		}
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return os.Chmod(path, mode)
}

// Read returns the content of a file. It fails with fs.ErrNotExist if the file is missing,
// [store.ErrTooLarge] if it has more than 64 MiB, and [ErrNotRegular] if it is not a file.
func (d *Dir) Read(name string) ([]byte, error) {
	path, err := d.check(name)
	if err != nil {
		return nil, err
	}
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Content(f)
}

// openFile opens a file for reading, and does not wait should it be a named pipe.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s: %w: a symbolic link", path, ErrNotRegular)
	}
	return f, atomicfile.AsNotExist(err)
}

// Content is Read for an open file that nothing has been read of.
func Content(f *os.File) ([]byte, error) {
	return atomicfile.Content(f, limit)
}

// unlessGone turns the error of what is gone already into success.
func unlessGone(err error) error {
	if errors.Is(atomicfile.AsNotExist(err), fs.ErrNotExist) {
		return nil
	}
	return err
}

// Link makes a symbolic link; fs.ErrExist if something of that name is there.
func (d *Dir) Link(name, target string) error {
	path, err := d.check(name)
	if err != nil {
		return err
	}
	return d.inside(func() error { return os.Symlink(target, path) })
}

// inside calls f, once more if the directory is missing: it is made then.
func (d *Dir) inside(f func() error) error {
	err := f()
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.Make(); err == nil {
			err = f()
		}
	}
	return err
}

// Entries lists what is in the directory, sorted, without names that begin with a dot. A
// directory that does not exist has none.
func (d *Dir) Entries() ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(d.path)
	if errors.Is(atomicfile.AsNotExist(err), fs.ErrNotExist) {
		return nil, nil
	}
	kept := entries[:0]
	for _, e := range entries {
		if e.Name()[0] != '.' {
			kept = append(kept, e)
		}
	}
	return kept, err
}

// Names lists the regular files, sorted.
func (d *Dir) Names() ([]string, error) {
	entries, err := d.Entries()
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Alone calls f while nobody else is in Alone with this directory, which must exist; the
// wait for that ends with a [*BusyError]. It locks the directory's descriptor, so it
// creates nothing.
func (d *Dir) Alone(limit time.Duration, f func() error) error {
	dir, err := os.OpenFile(d.path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // else Go tries to make it so, by four calls
	if err != nil {
		return err
	}
	defer dir.Close() // and with it the lock
	if err := await(context.Background(), d.path, limit, shortPause, func() error { return lock(dir) }); err != nil {
		return err
	}
	return f()
}
