// Package store reads, writes and removes device-info files by name in one directory (section 4 of the Device
// Information Specification 1.1.0). The specification's directories are [devinfo.CNIDir] and [devinfo.DevicePluginDir].
//
// Readers see either the old or the new content of a file. A name is one path element. Below the directory the
// package works through an [os.Root] and refuses symbolic links, so it cannot touch anything outside. The path
// of the directory itself may contain links, because /var/run is one.
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
	"strings"
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
	root, err := d.openExisting()
	if root == nil {
		return nil, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, d.wrap("", "list", err)
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
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

func (d *Dir) open() (*os.Root, error) {
	if err := atomicfile.CheckDir(d.dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(d.dir)
	if err == nil {
		return root, nil
	}
	if stat, statErr := os.Stat(d.dir); statErr == nil && !stat.IsDir() {
		return nil, fmt.Errorf("%s: not a directory: %w", d.dir, fs.ErrNotExist)
	}
	return nil, atomicfile.AsNotExist(err)
}

// openExisting is like open, but returns nil for a missing directory.
func (d *Dir) openExisting() (*os.Root, error) {
	root, err := d.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return root, err
}

// Make creates the directory and its missing parents, as Write does. It changes directories on the path that
// have mode 000 to 0755. A process without root's rights must call it before it reads, because it cannot read
// below a directory of mode 000.
func (d *Dir) Make() error {
	root, err := d.make()
	if err != nil {
		return err
	}
	return root.Close()
}

// make creates the directory and its missing parents. It also repairs directories of mode 000: some programs
// create the tree with os.MkdirAll(dir, os.ModeDir), and then only root can read the files. make begins at the
// root directory, because the owner of such a tree cannot look below its top.
func (d *Dir) make() (*os.Root, error) {
	if err := atomicfile.CheckDir(d.dir); err != nil {
		return nil, err
	}
	for end := 1; end <= len(d.dir); end++ {
		if end < len(d.dir) && d.dir[end] != '/' {
			continue
		}
		if err := ensure(d.dir[:end]); err != nil {
			return nil, err
		}
	}
	return os.OpenRoot(d.dir)
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

// wrap replaces the bare name in an error of os.Root by the full path.
func (d *Dir) wrap(name, action string, err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return fmt.Errorf("%s: %s: %w", d.Path(name), action, err)
}
