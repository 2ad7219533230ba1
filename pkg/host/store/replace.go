package store

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const tempMode fs.FileMode = 0o600

// Replace atomically replaces the file at path, or a symbolic link there. fill writes the new content to a temporary
// file in dir, a directory of the same disk. Replace then renames that file. It has mode 0600 unless fill changes it.
//
// Writers of one path wait for each other on a lock (flock) of the temporary file. A temporary file without
// that lock belongs to a killed writer, so Replace takes it over.
//
// The returned file is open and stays locked until it is closed. If the file is a program, fill must close it,
// because the kernel does not start a program whose file is open for writing.
func Replace(dir, path string, fill func(temp *os.File) error) (*os.File, error) {
	temp := filepath.Join(dir, temporary(filepath.Base(path)))
	f, err := lock(temp)
	if err != nil {
		return nil, err
	}
	if err = fill(f); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // the first error matters
		f.Close()
		return nil, err
	}
	return f, nil
}

// Remove removes a file or symbolic link, and the temporary file of a killed writer. Missing files are not an error,
// even on a read-only disk.
func Remove(path string) error {
	if _, err := removeLeftover(filepath.Join(filepath.Dir(path), temporary(filepath.Base(path)))); err != nil {
		return err
	}
	_, err := os.Lstat(path)
	if err == nil {
		err = os.Remove(path)
	}
	return UnlessGone(err)
}

// removeLeftover removes a temporary file if its writer is dead. It keeps a locked file and does not wait for the lock.
// It creates nothing, so it works on a full disk.
func removeLeftover(temp string) (removed bool, err error) {
	f, _, err := hold(temp, tryLock, func() (*os.File, error) { return reopen(temp) })
	if err == nil {
		defer f.Close()
		err = os.Remove(temp)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return false, nil
	}
	return false, UnlessGone(err) // a writer without a lock, as [devinfo.WriteFile] is, may have renamed its file meanwhile
}

// SyncDir writes the entries of a directory to the disk.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// lock creates the temporary file and locks it. If a killed process has left the file, lock takes it over and empties it.
func lock(temp string) (*os.File, error) {
	f, size, err := hold(temp, syscall.LOCK_EX, func() (*os.File, error) {
		for {
			// Without O_NONBLOCK, Go makes four more system calls to set it.
			f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_RDWR|syscall.O_NONBLOCK, tempMode)
			if !errors.Is(err, fs.ErrExist) {
				return f, err
			}
			if f, err = reopen(temp); !errors.Is(err, fs.ErrNotExist) {
				return f, err
			}
		}
	})
	if err == nil && size > 0 {
		if err = f.Truncate(0); err != nil {
			f.Close()
		}
	}
	return f, err
}

// hold opens and locks the file at path. A process must hold the lock to rename or remove the file. If one has done so before
// hold had the lock, hold begins again; afterwards the file keeps its name. size is that of the file.
func hold(path string, how int, open func() (*os.File, error)) (f *os.File, size int64, err error) {
	for {
		if f, err = open(); err != nil {
			return nil, 0, err
		}
		held := false
		if err = flock(f, how); err == nil {
			held, size, err = IsAt(f, path)
		}
		if held {
			return f, size, nil
		}
		f.Close()
		if err != nil {
			return nil, 0, err
		}
	}
}

// reopen opens an existing temporary file. It removes a link, a FIFO, or another user's file, whose owner could hold
// its lock for ever. It returns fs.ErrNotExist if no file has the name any more.
func reopen(temp string) (*os.File, error) {
	stat, err := os.Lstat(temp)
	if err != nil {
		return nil, err
	}
	if !ownFile(stat) {
		if err := os.Remove(temp); err != nil {
			return nil, err
		}
		return nil, fs.ErrNotExist
	}
	f, err := os.OpenFile(temp, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
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

// IsAt reports whether f is still the file at path, neither renamed nor removed. size is the size of f.
func IsAt(f *os.File, path string) (is bool, size int64, err error) {
	open, err := f.Stat()
	if err != nil {
		return false, 0, err
	}
	there, err := os.Lstat(path)
	if missing(err) {
		return false, 0, nil
	}
	return err == nil && os.SameFile(open, there), open.Size(), err
}

// flock is flock(2), repeated on EINTR.
func flock(f *os.File, how int) error {
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
// this package creates, because Sweep removes every file with that suffix that has no running writer.
const tempPrefix, tempSuffix = ".", ".devinfo"

func isTemporary(e fs.DirEntry) bool {
	name := strings.TrimSuffix(strings.TrimPrefix(e.Name(), tempPrefix), tempSuffix)
	return name != "" && e.Name() == tempPrefix+name+tempSuffix && e.Type().IsRegular()
}

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
