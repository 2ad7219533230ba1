// Package store reads, writes and removes device-info files by name in one directory (section 4 of the Device
// Information Specification 1.1.0). The specification's directories are [devinfo.CNIDir] and [devinfo.DevicePluginDir].
//
// Readers see either the old or the new content of a file. A name is one path element, and the package follows no
// symbolic link in the directory, so it cannot touch anything outside. The path of the directory itself may contain
// links, because /var/run is one.
//
// Files survive the death of their writer, but are not synced: they describe devices of the running kernel, so
// they have no use after a power failure.
//
// To read a single file by its path, use [devinfo.ReadFile].
package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"devinfo-cni.io/devinfo/atomicfile"
)

// Dir is a directory of small files. Its methods may be called concurrently, also from several processes.
type Dir struct{ dir string }

const (
	dirMode  fs.FileMode = 0o755
	fileMode fs.FileMode = 0o644
	limit                = 1 << 20 // size of a file in bytes
)

// Open returns the Dir for a path without touching the disk. If dir is not absolute, every method fails. Directories
// are created with mode 0755 and files with mode 0644, whatever the umask. A file may have at most 1 MiB.
func Open(dir string) *Dir { return &Dir{filepath.Clean(dir)} }

// Path returns the path of the file with that name. It does not check the name.
func (d *Dir) Path(name string) string { return filepath.Join(d.dir, name) }

// Names returns the sorted names of the regular files, except names that begin with a dot. It returns an empty
// list if the directory does not exist.
func (d *Dir) Names() ([]string, error) {
	if err := atomicfile.CheckDir(d.dir); err != nil {
		return nil, err
	}
	names, err := atomicfile.Names(d.dir)
	return names, d.wrap("", "list", err)
}

// Writable checks whether Write could succeed, and leaves no trace. It writes an unnamed file in the directory
// or in its nearest existing ancestor; the error names that directory. On file systems without unnamed files it
// checks the directory's mode.
func (d *Dir) Writable() error {
	if err := atomicfile.CheckDir(d.dir); err != nil {
		return err
	}
	for dir := d.dir; ; dir = filepath.Dir(dir) {
		stat, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			if _, err := os.Lstat(dir); err == nil {
				return fmt.Errorf("%s: symbolic link to nothing", dir)
			}
			continue
		}
		if err != nil {
			return err
		}
		if !stat.IsDir() {
			return notDirectory(dir)
		}
		err = try(dir)
		if path := new(fs.PathError); errors.As(err, &path) {
			err = path.Err
		}
		if err != nil {
			return fmt.Errorf("%s: not writable: %w", dir, err)
		}
		return nil
	}
}

// try writes an unnamed file in dir, see O_TMPFILE in open(2).
func try(dir string) error {
	const tmpfile = 0o20000000 | syscall.O_DIRECTORY // O_TMPFILE
	const mayWrite, maySearch = 2, 1                 // W_OK, X_OK of access(2)
	f, err := os.OpenFile(dir, tmpfile|os.O_WRONLY, 0o600)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EISDIR) {
		return syscall.Access(dir, mayWrite|maySearch)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096)) // one block, to notice a full disk
	return errors.Join(err, f.Close())
}

// Make creates the directory and its missing parents, as Write does. It changes directories on the path that
// have mode 000 to 0755: some programs create the tree with os.MkdirAll(dir, os.ModeDir), and then only root can read
// the files. A process without root's rights must call it before it reads.
func (d *Dir) Make() error {
	if err := atomicfile.CheckDir(d.dir); err != nil {
		return err
	}
	for end := 1; end <= len(d.dir); end++ { // from the top, because the owner of such a tree cannot look below it
		if end < len(d.dir) && d.dir[end] != '/' {
			continue
		}
		if err := ensure(d.dir[:end]); err != nil {
			return err
		}
	}
	return nil
}

func ensure(dir string) error {
	stat, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Mkdir(dir, dirMode)
		if err == nil {
			return os.Chmod(dir, dirMode) // Mkdir applied the umask
		}
		if errors.Is(err, fs.ErrExist) { // another process created it meanwhile
			stat, err = os.Stat(dir)
		}
	}
	if err != nil {
		return err
	}
	if !stat.IsDir() {
		return notDirectory(dir)
	}
	if stat.Mode().Perm() == 0 {
		return os.Chmod(dir, dirMode)
	}
	return nil
}

func notDirectory(path string) error {
	return fmt.Errorf("%s: %w", path, syscall.ENOTDIR)
}

// wrap makes an error of the system begin with the path of the file instead of the call, which may be about the
// temporary file.
func (d *Dir) wrap(name, action string, err error) error {
	switch of := err.(type) {
	case *fs.PathError:
		err = of.Err
	case *os.LinkError:
		err = of.Err
	default:
		return err
	}
	return fmt.Errorf("%s: %s: %w", d.Path(name), action, err)
}
