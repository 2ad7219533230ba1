// Package store is the directory of device-info files (section 4 of the Device
// Information Specification 1.1.0): read, written and removed by name, so that
// readers see the old or the new file, never half of one, and so that nothing
// outside of the directory is ever touched.
//
// Names are one path element. All work below the directory goes through an
// [os.Root] and refuses to follow symbolic links; on the way to the directory
// links are followed, because /var/run is one. Files survive the death of the
// writer, but are not synced, unless [OpenDurable] asks for it: they describe
// devices of the running kernel, and are worth nothing after a power failure.
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
)

// Dir is a directory of small files. Its methods may be called at once, also
// from several processes.
type Dir struct {
	dir      string
	dirMode  fs.FileMode // of the directory itself; those above it are 0755
	fileMode fs.FileMode
	limit    int  // size of a file in bytes
	durable  bool // see OpenDurable
}

// Open names the directory; it touches nothing on disk. Unless dir is absolute
// every method fails. Directories are made 0755 and files 0644, whatever the
// umask; a file may have 1 MiB.
func Open(dir string) *Dir {
	return &Dir{filepath.Clean(dir), 0o755, 0o644, 1 << 20, false}
}

const privateMode = 0o700

// OpenPrivate is [Open] for files that may hold secrets: the directory is made
// 0700 and files 0600. A file may have 4 MiB, to hold another one in base64.
func OpenPrivate(dir string) *Dir {
	return &Dir{filepath.Clean(dir), privateMode, 0o600, 4 << 20, false}
}

// OpenDurable is [OpenPrivate] for files that must outlive a power failure: Write
// returns once the file and its name are on the disk, Remove once the name is off it.
func OpenDurable(dir string) *Dir {
	d := OpenPrivate(dir)
	d.durable = true
	return d
}

// Path is where the file of that name is; the name is not checked.
func (d *Dir) Path(name string) string { return filepath.Join(d.dir, name) }

// Names lists the regular files, sorted, without those whose name begins with a
// dot. A directory that does not exist has none.
func (d *Dir) Names() ([]string, error) {
	root, err := d.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
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

// Links lists the symbolic links that hold target, sorted; see [Dir.Locked] for who
// makes links. A directory that does not exist has none.
func (d *Dir) Links(target string) ([]string, error) {
	entries, err := os.ReadDir(d.dir)
	if err = notThere(err); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, d.wrap("", "list", err)
	}
	var names []string
	for _, e := range entries {
		if e.Type() != fs.ModeSymlink {
			continue
		}
		if held, err := os.Readlink(d.Path(e.Name())); err == nil && held == target {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// notThere makes fs.ErrNotExist of the error that the directory is none: there can be
// no file in it.
func notThere(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w (%w)", fs.ErrNotExist, err)
	}
	return err
}

// Writable asks, without side effect, whether Write could succeed: the
// directory, or its nearest ancestor that exists, must be a directory that this
// process may write to. The error names it.
func (d *Dir) Writable() error {
	if err := d.checkAbsolute(); err != nil {
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
		const mayWrite, maySearch = 2, 1 // W_OK, X_OK of access(2)
		if err := syscall.Access(dir, mayWrite|maySearch); err != nil {
			return fmt.Errorf("%s: not writable: %w", dir, err)
		}
		return nil
	}
}

// open is for what needs no directory to be made.
func (d *Dir) open() (*os.Root, error) {
	if err := d.checkAbsolute(); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(d.dir)
	if err == nil {
		return root, nil
	}
	if stat, statErr := os.Stat(d.dir); statErr == nil && !stat.IsDir() {
		return nil, fmt.Errorf("%s: %w: it is no directory", d.dir, fs.ErrNotExist)
	}
	return nil, notThere(err)
}

// make makes the directory and those above it where they are missing. Other
// tools have made the tree with os.MkdirAll(dir, os.ModeDir), that is with mode
// 000: only root could read the files, so such directories are mended. Top down,
// for the owner of such a tree cannot look below its top.
func (d *Dir) make() (*os.Root, error) {
	if err := d.checkAbsolute(); err != nil {
		return nil, err
	}
	if d.dirMode == privateMode { // nobody else makes those, so there is nothing to mend
		if root, err := os.OpenRoot(d.dir); err == nil {
			return root, nil
		}
	}
	for end := 1; end < len(d.dir); end++ {
		if d.dir[end] != '/' {
			continue
		}
		if err := ensure(d.dir[:end], 0o755); err != nil {
			return nil, err
		}
	}
	if err := ensure(d.dir, d.dirMode); err != nil {
		return nil, err
	}
	return os.OpenRoot(d.dir)
}

func ensure(dir string, mode fs.FileMode) error {
	stat, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Mkdir(dir, mode)
		if err == nil {
			return os.Chmod(dir, mode) // the umask
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
		return os.Chmod(dir, mode)
	}
	return nil
}

func notDirectory(path string) error {
	return fmt.Errorf("%s: %w", path, syscall.ENOTDIR)
}

func (d *Dir) checkAbsolute() error {
	if !filepath.IsAbs(d.dir) {
		return fmt.Errorf("directory %q: must be an absolute path", d.dir)
	}
	return nil
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
