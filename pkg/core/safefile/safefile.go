// Package safefile keeps small files and symbolic links that only root may access, such as the journal of
// attachments and the state of claims. Directories have mode 0700 and files 0600. Writes are atomic.
//
// Unlike devinfo/store, it trusts its directory and needs fewer system calls. Existing files can be read, locked and
// removed on a full disk. Operations that change nothing also succeed on a read-only disk.
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

// ErrNotRegular is the error for a path that is not a regular file: a directory, a symbolic link or a FIFO.
var ErrNotRegular = atomicfile.ErrNotRegular

// limit is the maximum size of a file in bytes. The largest file is a journal entry, with a configuration of 8 MiB
// (encoding may make its delegates six times as large), a result of 10 MB and two device-info files of 1 MiB.
const limit = 64 << 20

// Dir is a directory. Its methods may be called concurrently, also from several processes.
type Dir struct {
	path    string
	durable bool
}

// Open returns the directory at an absolute path. It touches nothing on disk.
func Open(path string) *Dir { return &Dir{filepath.Clean(path), false} }

// OpenDurable is [Open] for files that must survive a power failure. Write and Remove return after the change
// is on the disk.
func OpenDurable(path string) *Dir { return &Dir{filepath.Clean(path), true} }

// Path returns the path of a name in the directory, without checking the name.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// check returns the path of a name, which must be one path element without a leading dot.
func (d *Dir) check(name string) (string, error) {
	if err := atomicfile.CheckDir(d.path); err != nil {
		return "", err
	}
	if err := atomicfile.CheckName(name); err != nil {
		return "", &store.NameError{Name: name, Err: err}
	}
	return d.Path(name), nil
}

// Make creates the directory with mode 0700, and missing parents with mode 0755, whatever the umask is.
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

// Read returns the content of a file. It fails with fs.ErrNotExist if the file is missing, [store.ErrTooLarge]
// if it has more than 64 MiB, and [ErrNotRegular] if it is not a regular file.
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

// openFile opens a file for reading. It does not block on a FIFO.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s: %w: a symbolic link", path, ErrNotRegular)
	}
	return f, atomicfile.AsNotExist(err)
}

// Content is Read for an open file at offset 0.
func Content(f *os.File) ([]byte, error) {
	return atomicfile.Content(f, limit)
}

func unlessGone(err error) error {
	if errors.Is(atomicfile.AsNotExist(err), fs.ErrNotExist) {
		return nil
	}
	return err
}

// Link creates a symbolic link. It fails with fs.ErrExist if the name exists.
func (d *Dir) Link(name, target string) error {
	path, err := d.check(name)
	if err != nil {
		return err
	}
	return d.inside(func() error { return os.Symlink(target, path) })
}

// inside calls f. If the directory is missing, it creates the directory and calls f again.
func (d *Dir) inside(f func() error) error {
	err := f()
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.Make(); err == nil {
			err = f()
		}
	}
	return err
}

// Entries returns the directory entries whose names do not begin with a dot, sorted. A missing directory has none.
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

// Names returns the names of the regular files, sorted.
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

// Alone calls f while it holds the lock of the directory, which must exist. If the lock stays busy until the
// limit, it returns a [*BusyError]. It locks the directory itself, so it creates no lock file.
func (d *Dir) Alone(limit time.Duration, f func() error) error {
	dir, err := os.OpenFile(d.path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // without O_NONBLOCK, package os needs four more system calls
	if err != nil {
		return err
	}
	defer dir.Close() // also unlocks the directory
	if err := await(context.Background(), d.path, limit, shortPause, func() error { return lock(dir) }); err != nil {
		return err
	}
	return f()
}

// Files is the path of a directory, with methods for [atomicfile.Replace].
type Files string

func (f Files) at(name string) string { return filepath.Join(string(f), name) }

// OpenFile is like [os.OpenFile], but does not follow a symbolic link.
func (f Files) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(f.at(name), flag|syscall.O_NOFOLLOW, perm)
}

// Lstat, Rename and Remove work like the functions of package os.
func (f Files) Lstat(name string) (fs.FileInfo, error) { return os.Lstat(f.at(name)) }
func (f Files) Rename(from, to string) error           { return os.Rename(f.at(from), f.at(to)) }
func (f Files) Remove(name string) error               { return os.Remove(f.at(name)) }

// Sync writes the directory to the disk.
func (f Files) Sync() error {
	dir, err := os.Open(string(f))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func (d *Dir) files() Files { return Files(d.path) }

// Write replaces the content of a file atomically, and creates the directory if necessary. A killed writer may
// leave a temporary file. The next Write or Remove of that name, or Sweep, removes it.
func (d *Dir) Write(name string, data []byte) error {
	f, err := d.WriteLocked(name, data)
	if err != nil {
		return err
	}
	return f.Close() // also unlocks the file
}

// WriteLocked is Write, and returns the file with the lock that [Lock] takes. The file is locked before it
// appears in the directory. The caller must call [Unlock].
func (d *Dir) WriteLocked(name string, data []byte) (*os.File, error) {
	path, err := d.check(name)
	if err != nil {
		return nil, err
	}
	if err := atomicfile.CheckSize(path, len(data), limit); err != nil {
		return nil, err
	}
	fill := func(temp *os.File) error {
		if _, err := temp.Write(data); err != nil || !d.durable {
			return err
		}
		return temp.Sync()
	}
	var f *os.File
	err = d.inside(func() (err error) {
		f, err = atomicfile.Replace(d.files(), name, fill)
		return err
	})
	if err != nil || !d.durable {
		return f, err
	}
	if err := d.files().Sync(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Remove removes a file and the temporary file of a killed writer. Missing files are not an error, even on a
// read-only disk.
func (d *Dir) Remove(name string) error {
	path, err := d.check(name)
	if err != nil {
		return err
	}
	if _, err := atomicfile.RemoveLeftover(d.files(), name); err != nil {
		return err
	}
	if _, err = os.Lstat(path); err == nil {
		err = os.Remove(path)
	}
	if err := unlessGone(err); err != nil || !d.durable {
		return err
	}
	return unlessGone(d.files().Sync())
}

// Sweep removes the temporary files of killed writers. It calls removed with each name.
func (d *Dir) Sweep(removed func(name string)) error {
	entries, err := os.ReadDir(d.path)
	if errors.Is(atomicfile.AsNotExist(err), fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, atomicfile.SweepLeftovers(d.files(), entries, removed))
}
