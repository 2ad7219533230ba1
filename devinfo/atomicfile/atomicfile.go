// Package atomicfile reads files, and replaces them so that readers see either the old or the new content. It is
// internal to this project, and its interface may change. Other programs should use devinfo/store.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Files gives access to the files of one directory. An [os.Root] implements it.
type Files interface {
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Lstat(name string) (fs.FileInfo, error)
	Rename(oldname, newname string) error
	Remove(name string) error
}

// Replace atomically replaces the file called name. fill writes the new content to a temporary file, which
// Replace renames. The file has mode 0600 unless fill changes it.
//
// Writers of one name wait for each other on a lock (flock) of the temporary file. A temporary file without
// that lock belongs to a killed writer, so Replace takes it over.
//
// The returned file is open and stays locked until it is closed. If the file is a program, fill must close it,
// because the kernel does not start a program whose file is open for writing.
func Replace(dir Files, name string, fill func(temp *os.File) error) (*os.File, error) {
	temp, err := lock(dir, temporary(name))
	if err != nil {
		return nil, err
	}
	if err = fill(temp); err == nil {
		err = dir.Rename(temporary(name), name)
	}
	if err != nil {
		_ = dir.Remove(temporary(name)) // the first error matters
		temp.Close()
		return nil, err
	}
	return temp, nil
}

// RemoveLeftover removes the temporary file of name if its writer is dead. It keeps a locked file and does not
// wait for the lock. It creates nothing, so it works on a full disk.
func RemoveLeftover(dir Files, name string) (removed bool, err error) {
	f, err := reopen(dir, temporary(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = Flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	inPlace := false
	if err == nil {
		inPlace, _, err = IsAt(dir, temporary(name), f)
	}
	if inPlace {
		err = dir.Remove(temporary(name))
	}
	return err == nil && inPlace, err
}

// SweepLeftovers calls RemoveLeftover for each temporary file among a directory's entries. It calls removed with
// the name of each file that it removes. It continues after a failure.
func SweepLeftovers(dir Files, entries []fs.DirEntry, removed func(temp string)) error {
	var errs []error
	for _, e := range entries {
		name := strings.TrimSuffix(strings.TrimPrefix(e.Name(), tempPrefix), tempSuffix)
		if name == "" || e.Name() != tempPrefix+name+tempSuffix || !e.Type().IsRegular() {
			continue
		}
		gone, err := RemoveLeftover(dir, name)
		if gone {
			removed(e.Name())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// lock creates the temporary file and locks it. If a killed process has left the file, lock takes it over and
// empties it. A process must hold the lock to rename or remove the file, so no other process can do so once lock
// has checked that the locked file still has its name.
func lock(dir Files, temp string) (*os.File, error) {
	for {
		// Without O_NONBLOCK, Go makes four more system calls to set it. Without O_EXCL, os.Root follows a link
		// that stays inside.
		f, err := dir.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_RDWR|syscall.O_NONBLOCK, 0o600)
		if errors.Is(err, fs.ErrExist) {
			f, err = reopen(dir, temp)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		err = Flock(f, syscall.LOCK_EX)
		inPlace, size := false, int64(0)
		if err == nil {
			inPlace, size, err = IsAt(dir, temp, f)
		}
		if inPlace && size > 0 {
			err = f.Truncate(0)
		}
		if inPlace && err == nil {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// reopen opens an existing temporary file. It removes a link, a FIFO, or another user's file, whose owner could hold
// its lock for ever. It returns fs.ErrNotExist if no file has the name any more.
func reopen(dir Files, temp string) (*os.File, error) {
	stat, err := dir.Lstat(temp)
	if err != nil {
		return nil, AsNotExist(err)
	}
	if !ownFile(stat) {
		if err := dir.Remove(temp); err != nil {
			return nil, err
		}
		return nil, fs.ErrNotExist
	}
	f, err := dir.OpenFile(temp, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if stat, err = f.Stat(); err == nil && !ownFile(stat) { // another process has replaced it since Lstat
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ownFile reports whether a file is regular, belongs to this user, and has at most one name.
func ownFile(stat fs.FileInfo) bool {
	s, ok := stat.Sys().(*syscall.Stat_t)
	return ok && stat.Mode().IsRegular() && int(s.Uid) == os.Geteuid() && s.Nlink <= 1
}

// IsAt reports whether f is still the file called name, neither renamed nor removed. size is the size of f.
func IsAt(dir Files, name string, f *os.File) (is bool, size int64, err error) {
	open, err := f.Stat()
	if err != nil {
		return false, 0, err
	}
	there, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, 0, nil
	}
	return err == nil && os.SameFile(open, there), open.Size(), err
}

// Flock is flock(2), repeated on EINTR.
func Flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if err != syscall.EINTR {
			return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

// A temporary file's name begins with a dot; the name of a final file must not. The suffix marks the files that
// this package creates, because SweepLeftovers removes every file with that suffix that has no running writer.
const tempPrefix, tempSuffix = ".", ".devinfo"

// temporary returns the name of the temporary file. In place of the end of a long name it has a hash.
func temporary(name string) string {
	const part = 200
	if len(name) > maxName-len(tempPrefix)-len(tempSuffix) {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(name)) // never fails
		name = fmt.Sprintf("%s-%016x", name[:part], hash.Sum64())
	}
	return tempPrefix + name + tempSuffix
}

const maxName = 255 // the kernel's limit, in bytes

// CheckDir returns an error unless path is absolute.
func CheckDir(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("directory %q: must be an absolute path", path)
	}
	return nil
}

// CheckName returns an error unless name is one path element that does not begin with a dot.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("a file name is missing")
	case strings.HasPrefix(name, tempPrefix):
		return errors.New("a file name must not begin with a dot")
	case strings.ContainsAny(name, "/\x00"):
		return errors.New("a file name must not contain a slash or a NUL")
	case len(name) > maxName:
		return fmt.Errorf("a file name must not have more than %d bytes", maxName)
	}
	return nil
}

// ErrNotRegular is the error for anything except a regular file.
var ErrNotRegular = errors.New("not a regular file")

// ErrTooLarge is the error for a file over the size limit.
var ErrTooLarge = errors.New("too large")

// ReadFile opens a file and returns its [Content]. It does not block on a named pipe.
func ReadFile(path string, limit int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Content(f, limit)
}

// Content returns the content of an open file, read from its current position. The error is ErrNotRegular,
// ErrTooLarge for more than limit bytes, or the system's.
func Content(f *os.File, limit int) ([]byte, error) {
	stat, err := f.Stat()
	if err == nil {
		err = Regular(f.Name(), stat)
	}
	if err == nil {
		err = CheckSize(f.Name(), int(stat.Size()), limit)
	}
	if err != nil {
		return nil, err
	}
	var data bytes.Buffer
	data.Grow(int(stat.Size()) + bytes.MinRead)
	if _, err := data.ReadFrom(io.LimitReader(f, int64(limit)+1)); err != nil {
		return nil, err
	}
	return data.Bytes(), CheckSize(f.Name(), data.Len(), limit) // the file may have grown
}

// Regular returns ErrNotRegular unless stat is of a regular file.
func Regular(path string, stat fs.FileInfo) error {
	if !stat.Mode().IsRegular() {
		return fmt.Errorf("%s: %w (mode %s)", path, ErrNotRegular, stat.Mode())
	}
	return nil
}

// CheckSize returns ErrTooLarge if size exceeds limit, which must be a multiple of 1 MiB.
func CheckSize(path string, size, limit int) error {
	if size > limit {
		return fmt.Errorf("%s: %w: more than %d MiB", path, ErrTooLarge, limit>>20)
	}
	return nil
}

// AsNotExist converts ENOTDIR, the error of a path that leads through a file, to fs.ErrNotExist.
func AsNotExist(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w (%w)", fs.ErrNotExist, err)
	}
	return err
}
