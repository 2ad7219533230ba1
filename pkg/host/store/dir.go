// Package store keeps small files in directories. Readers see either the old or the new content of a file, whatever is
// killed meanwhile.
//
// A name is one path element, and no link in the directory is followed, so no name leads outside. The path of the directory
// itself may contain links, because /var/run is one. Existing files can be read, locked and removed on a full disk, and what
// changes nothing succeeds on a read-only disk.
package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Dir is a directory of small files. Its methods may be called concurrently, also from several processes. If its path is
// not absolute, they fail.
type Dir struct {
	path    string
	mode    fs.FileMode // of the directory; a file has it without the bits for execution
	limit   int64       // size of a file in bytes
	durable bool        // changes survive a power failure
}

// Open returns a directory of files that all users may read, such as device-info files. It touches nothing on disk. The
// directory gets mode 0755 and files get mode 0644, whatever the umask. A file may have at most 1 MiB. Files survive the
// death of their writer, but not a power failure, after which they would describe devices of an earlier kernel.
func Open(dir string) *Dir { return &Dir{path: filepath.Clean(dir), mode: 0o755, limit: 1 << 20} }

// Private is like Open, for files that only root may read: the directory gets mode 0700 and files get mode 0600. A file may
// have at most 64 MiB. The largest is a journal entry, with a configuration of 8 MiB (encoding may make its delegates six
// times as large), a result of 10 MB and two device-info files.
func Private(dir string) *Dir { return &Dir{path: filepath.Clean(dir), mode: 0o700, limit: 64 << 20} }

// Durable is like Private, for files that must survive a power failure. Write and Remove return after the change is on
// the disk.
func Durable(dir string) *Dir {
	d := Private(dir)
	d.durable = true
	return d
}

// Path returns the path of a name in the directory, without checking the name.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Make creates the directory, and missing parents with mode 0755. It also changes directories on the path that have mode
// 000 to 0755: some programs create the tree with os.MkdirAll(dir, os.ModeDir), and then only root can read the files. A
// process without root's rights must call it before it reads.
func (d *Dir) Make() error {
	if err := d.check(); err != nil {
		return err
	}
	for end := 1; end < len(d.path); end++ { // from the top, because the owner of such a tree cannot look below it
		if d.path[end] != '/' {
			continue
		}
		if err := ensure(d.path[:end], 0o755); err != nil {
			return err
		}
	}
	return ensure(d.path, d.mode)
}

func ensure(dir string, mode fs.FileMode) error {
	stat, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(dir, mode); err == nil {
			return os.Chmod(dir, mode) // Mkdir applied the umask
		}
		if errors.Is(err, fs.ErrExist) { // another process made it meanwhile
			stat, err = os.Stat(dir)
		}
	}
	switch {
	case err != nil:
		return err
	case !stat.IsDir():
		return notDirectory(dir)
	case stat.Mode().Perm() == 0:
		return os.Chmod(dir, mode)
	}
	return nil
}

func notDirectory(path string) error {
	return fmt.Errorf("%s: %w", path, syscall.ENOTDIR)
}

// inside calls f. If the directory is missing, it makes the directory and calls f again.
func (d *Dir) inside(f func() error) error {
	err := f()
	if missing(err) {
		if err = d.Make(); err == nil {
			err = f()
		}
	}
	return err
}

// Entries returns the directory entries whose names contain all the given parts and do not begin with a dot, sorted. A
// missing directory has none.
func (d *Dir) Entries(parts ...string) ([]fs.DirEntry, error) {
	entries, err := d.all()
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return e.Name()[0] == '.' || slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(e.Name(), part) })
	})
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// all returns all directory entries, in no order.
func (d *Dir) all() (entries []fs.DirEntry, err error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	dir, err := os.OpenFile(d.path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err == nil {
		defer dir.Close()
		entries, err = dir.ReadDir(-1)
	}
	return entries, d.wrap("", "list", UnlessGone(err))
}

// Names returns the names of the regular files among the [Dir.Entries].
func (d *Dir) Names(parts ...string) (names []string, err error) {
	entries, err := d.Entries(parts...)
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Removed returns an error if one of the directories, or one above it, was removed although its path still leads to it: a
// container's mount of a directory of the node does. Nothing can be written there, and what the node has in its place is not
// seen before the next container mounts it.
func Removed(dirs ...string) error {
	for _, dir := range dirs {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if stat, err := os.Stat(dir); err == nil && stat.Sys().(*syscall.Stat_t).Nlink == 0 {
				return fmt.Errorf("%s was removed on the node, and this container still mounts what was there: the next one mounts the new directory", dir)
			}
		}
	}
	return nil
}

// Room returns an error unless that number of small files and directories can be written in the directory, or in its nearest
// existing ancestor. It changes nothing. Some file systems, such as Btrfs, have no limit on files and report none.
func (d *Dir) Room(files uint64) error {
	if err := d.Writable(); err != nil {
		return err
	}
	dir, on, err := disk(d.path)
	if err == nil && (on.Files > 0 && on.Ffree < files || on.Blocks > 0 && on.Bfree < files) {
		return fmt.Errorf("%s: no room for %d files (%d inodes and %d blocks are free): %w", dir, files, on.Ffree, on.Bfree, syscall.ENOSPC)
	}
	return err
}

// Writable checks whether Write could succeed, and leaves no trace. It writes an unnamed file in the directory
// or in its nearest existing ancestor; the error names that directory. On file systems without unnamed files it
// checks the directory's mode.
func (d *Dir) Writable() error {
	if err := d.check(); err != nil {
		return err
	}
	dir, err := nearest(d.path)
	if err != nil {
		return err
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

// nearest returns a directory, or its nearest existing ancestor.
func nearest(dir string) (string, error) {
	for {
		stat, err := os.Stat(dir)
		if err == nil && !stat.IsDir() {
			return "", notDirectory(dir)
		} else if !missing(err) {
			return dir, err
		}
		if _, err := os.Lstat(dir); err == nil {
			return "", fmt.Errorf("%s: symbolic link to nothing", dir)
		}
		dir = filepath.Dir(dir)
	}
}

// disk returns the nearest existing ancestor of a directory, and its file system.
func disk(dir string) (_ string, on syscall.Statfs_t, err error) {
	if dir, err = nearest(dir); err == nil {
		err = syscall.Statfs(dir, &on)
	}
	return dir, on, err
}

// UnlessGone returns nil for an error that reports a missing file.
func UnlessGone(err error) error {
	if missing(err) {
		return nil
	}
	return err
}

// missing reports whether an error means that a file does not exist. A path that leads through a file is one of a missing
// file.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
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
