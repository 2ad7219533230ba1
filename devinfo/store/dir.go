// Package store is the directory of device-info files (section 4 of the Device
// Information Specification 1.1.0): read, written and removed by name, so that
// readers see the old or the new file, never half of one, and so that nothing
// outside of the directory is ever touched. [devinfo.CNIDir] and [devinfo.DevicePluginDir]
// are the directories of the specification.
//
// Names are one path element. All work below the directory goes through an
// [os.Root] and refuses to follow symbolic links; on the way to the directory
// links are followed, because /var/run is one. Files survive the death of the
// writer, but are not synced: they describe devices of the running kernel, and are
// worth nothing after a power failure.
//
// A consumer that has one path and only reads wants [devinfo.ReadFile].
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

// Dir is a directory of small files. Its methods may be called concurrently, also
// from several processes.
type Dir struct{ dir string }

const (
	dirMode  fs.FileMode = 0o755
	fileMode fs.FileMode = 0o644
	limit                = 1 << 20 // size of a file in bytes
)

// Open names the directory; it touches nothing on disk. Unless dir is absolute
// every method fails. Directories are made 0755 and files 0644, whatever the
// umask; a file may have 1 MiB.
func Open(dir string) *Dir { return &Dir{filepath.Clean(dir)} }

// Path is where the file of that name is; the name is not checked.
func (d *Dir) Path(name string) string { return filepath.Join(d.dir, name) }

// Names lists the regular files, sorted, without those whose name begins with a
// dot. A directory that does not exist has none.
func (d *Dir) Names() ([]string, error) {
	root, err := d.openIfThere()
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

// Writable checks, without leaving a trace, whether Write could succeed: it writes a
// nameless file in the directory or its nearest existing ancestor, which the error names. If
// the file system has no nameless files, it checks the directory's mode.
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

// try writes a nameless file, see O_TMPFILE in open(2).
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
	_, err = f.Write(make([]byte, 4096)) // a block
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
	return nil, atomicfile.NotThere(err)
}

// openIfThere gives nil for a directory that does not exist.
func (d *Dir) openIfThere() (*os.Root, error) {
	root, err := d.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return root, err
}

// Make makes the directory, as Write does: with those above it, and whatever of them has
// mode 000 is made 0755. For those who only read, and are not exempt from modes.
func (d *Dir) Make() error {
	root, err := d.make()
	if err != nil {
		return err
	}
	return root.Close()
}

// make makes the directory and those above it where they are missing. Other
// tools have made the tree with os.MkdirAll(dir, os.ModeDir), that is with mode
// 000: only root could read the files, so such directories are mended. Top down,
// for the owner of such a tree cannot look below its top.
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
			return os.Chmod(dir, dirMode) // the umask
		}
		if errors.Is(err, fs.ErrExist) { // by another process, just now
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

// wrap puts the whole path in the place of the name that os.Root reports.
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
