// Package atomicfile reads files, and replaces them so that readers see the old or the new content. It is what
// devinfo/store and the programs of this project have in common, and changes as they need it: other
// programs use devinfo/store.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Files are the files of one directory. An [os.Root] has these methods.
type Files interface {
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Lstat(name string) (fs.FileInfo, error)
	Rename(oldname, newname string) error
	Remove(name string) error
}

// Replace puts a file, 0600 unless fill changes that, in the place of what has that name,
// at once: fill writes it under a temporary name. Writers of one name wait for each other,
// by a lock on the temporary file (flock), which tells one that a killed writer has left:
// that is taken over. The file is returned open, and locked until it is closed; should it
// not be open while it has its name, as a program that may be started, fill closes it.
func Replace(dir Files, name string, fill func(temp *os.File) error) (*os.File, error) {
	temp, err := lock(dir, temporary(name))
	if err != nil {
		return nil, err
	}
	if err = fill(temp); err == nil {
		err = dir.Rename(temporary(name), name)
	}
	if err != nil {
		_ = dir.Remove(temporary(name)) // it is the first error that tells
		temp.Close()
		return nil, err
	}
	return temp, nil
}

// RemoveLeftover removes the temporary file of a name if its writer is dead. It creates
// nothing, so that it works on a full disk, and does not wait: one that is locked is no
// leftover.
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

// SweepLeftovers is RemoveLeftover for all of a directory's entries. It calls removed with
// the name of each temporary file; a failure does not stop the rest.
func SweepLeftovers(dir Files, entries []fs.DirEntry, removed func(temp string)) error {
	var errs []error
	for _, e := range entries {
		name, ours := final(e.Name())
		if !ours || !e.Type().IsRegular() {
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

// lock creates the temporary file, or takes over that of a killed process, empties and
// locks it. Whoever renames or removes it holds the lock, so once it is ours and still in
// its place, it stays there.
func lock(dir Files, temp string) (*os.File, error) {
	for {
		// Without O_NONBLOCK Go tries to make it so, by four calls. Without O_EXCL os.Root follows a link that stays inside.
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

// reopen opens a temporary file that exists. What else may be in its place is removed:
// a link, also a hard one, a FIFO, or the file of another user, who may hold its lock
// for ever. fs.ErrNotExist says that nothing is there now.
func reopen(dir Files, temp string) (*os.File, error) {
	stat, err := dir.Lstat(temp)
	if err != nil {
		return nil, NotThere(err)
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
	if stat, err = f.Stat(); err == nil && !ownFile(stat) { // since Lstat
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ownFile says whether a file can be one that a writer has made. It may have no name by
// now, but never two.
func ownFile(stat fs.FileInfo) bool {
	s, ok := stat.Sys().(*syscall.Stat_t)
	return ok && stat.Mode().IsRegular() && int(s.Uid) == os.Geteuid() && s.Nlink <= 1
}

// IsAt is false when f, which has that size, has been renamed or removed.
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

// Flock is flock(2), without EINTR.
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
