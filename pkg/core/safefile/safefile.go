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
	"strings"
	"syscall"
	"time"

	"devinfo-cni.io/devinfo/atomicfile"
)

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

// Read returns the content of a file. It fails with fs.ErrNotExist if the file is missing, [atomicfile.ErrTooLarge]
// if it has more than 64 MiB, and [atomicfile.ErrNotRegular] if it is not a regular file.
func (d *Dir) Read(name string) ([]byte, error) {
	path, err := atomicfile.Join(d.path, name)
	if err != nil {
		return nil, err
	}
	return atomicfile.Read(path, limit)
}

// Content is Read for an open file at offset 0.
func Content(f *os.File) ([]byte, error) { return atomicfile.Content(f, limit) }

// Link creates a symbolic link. It fails with fs.ErrExist if the name exists.
func (d *Dir) Link(name, target string) error {
	path, err := atomicfile.Join(d.path, name)
	if err != nil {
		return err
	}
	return d.inside(func() error { return os.Symlink(target, path) })
}

// inside calls f. If the directory is missing, it creates the directory and calls f again.
func (d *Dir) inside(f func() error) error {
	err := f()
	if errors.Is(err, fs.ErrNotExist) {
		if err = mkdir(d.path, 0o700); err == nil {
			err = f()
		}
	}
	return err
}

// Entries returns the directory entries whose names do not begin with a dot, sorted. A missing directory has none.
func (d *Dir) Entries() ([]fs.DirEntry, error) { return atomicfile.Entries(d.path) }

func (d *Dir) Names() ([]string, error) { return atomicfile.Names(d.path) }

// Alone calls f while it holds the lock of the directory, which must exist. If the lock stays busy until the
// limit, it returns a [*BusyError]. It locks the directory itself, so it creates no lock file.
func (d *Dir) Alone(limit time.Duration, f func() error) error {
	dir, err := os.OpenFile(d.path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // without O_NONBLOCK, package os needs four more system calls
	if err != nil {
		return err
	}
	defer dir.Close() // also unlocks the directory
	if err := await(context.Background(), d.path, limit, shortPause, func() error { return atomicfile.Flock(dir, tryLock) }); err != nil {
		return err
	}
	return f()
}

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
	path, err := atomicfile.Join(d.path, name)
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
		f, err = atomicfile.Replace(path, fill)
		return err
	})
	if err != nil || !d.durable {
		return f, err
	}
	if err := atomicfile.SyncDir(d.path); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Remove removes a file and the temporary file of a killed writer. Missing files are not an error, even on a
// read-only disk.
func (d *Dir) Remove(name string) error {
	path, err := atomicfile.Join(d.path, name)
	if err != nil {
		return err
	}
	if err := atomicfile.Remove(path); err != nil || !d.durable {
		return err
	}
	return atomicfile.UnlessGone(atomicfile.SyncDir(d.path))
}

// Sweep removes the temporary files of killed writers. It calls removed with each name.
func (d *Dir) Sweep(removed func(name string)) error { return atomicfile.Sweep(d.path, removed) }

// Unexposed returns an error if users other than root can replace a directory or its contents. Each directory on the
// path, and on the targets of links in it, must belong to root and must not be writable for group or other users. The
// sticky bit is not enough: after an element of the path is deleted, as in a reboot, any user can create it. A missing
// element is not an error, because only root can create it.
func Unexposed(dir string) error { return UnexposedBelow("/", dir) }

// UnexposedBelow is Unexposed for a root directory that is mounted at root. dir, links and the error are
// relative to that root.
func UnexposedBelow(root, dir string) error {
	if err := atomicfile.CheckDir(dir); err != nil {
		return err
	}
	const mostLinks = 40 // the kernel's limit
	at, rest := "/", elements(dir)
	for links := 0; links <= mostLinks; {
		stat, err := os.Lstat(filepath.Join(root, at))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case stat.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(filepath.Join(root, at))
			if err != nil {
				return err
			}
			if at = filepath.Dir(at); filepath.IsAbs(target) {
				at = "/"
			}
			links++
			rest = append(elements(target), rest...)
		default:
			if err := unexposed(at, stat); err != nil || len(rest) == 0 {
				return err
			}
		}
		if len(rest) > 0 {
			at, rest = filepath.Join(at, rest[0]), rest[1:]
		}
	}
	return fmt.Errorf("%s: %w", dir, syscall.ELOOP)
}

// Own returns an error if users other than root and this process's can change the contents of a directory. It follows
// links, and does not examine the directories above. It returns nil if there is no directory.
func Own(dir string) error {
	stat, err := os.Stat(dir)
	if err != nil || !stat.IsDir() {
		return nil
	}
	return unexposed(dir, stat)
}

func elements(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// unexposed checks one directory. The owner of the root directory does not matter, because it is an unmapped
// user in a user namespace.
func unexposed(dir string, stat fs.FileInfo) error {
	const others = "users other than root can replace its contents"
	raw, ok := stat.Sys().(*syscall.Stat_t)
	switch {
	case !stat.IsDir():
		return fmt.Errorf("%s: %w", dir, syscall.ENOTDIR)
	case stat.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s has mode %s: %s", dir, stat.Mode(), others)
	case ok && raw.Uid != 0 && int(raw.Uid) != os.Geteuid() && dir != "/":
		return fmt.Errorf("%s belongs to user %d: %s", dir, raw.Uid, others)
	}
	return nil
}
