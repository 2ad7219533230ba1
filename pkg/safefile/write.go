package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"devinfo-cni.io/devinfo/atomicfile"
)

// Files is the path of a directory, with methods for [atomicfile.Replace].
type Files string

func (d Files) at(name string) string { return filepath.Join(string(d), name) }

// OpenFile is like [os.OpenFile], but does not follow a symbolic link.
func (d Files) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(d.at(name), flag|syscall.O_NOFOLLOW, perm)
}

// Lstat, Rename and Remove work like the functions of package os.
func (d Files) Lstat(name string) (fs.FileInfo, error) { return os.Lstat(d.at(name)) }
func (d Files) Rename(from, to string) error           { return os.Rename(d.at(from), d.at(to)) }
func (d Files) Remove(name string) error               { return os.Remove(d.at(name)) }

// Sync writes the directory to the disk.
func (d Files) Sync() error {
	dir, err := os.Open(string(d))
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
