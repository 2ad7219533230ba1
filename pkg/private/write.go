package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// The temporary file of a name. Its writer holds a lock on it, by which one that a
// killed writer has left is known, whatever its age and in whichever PID namespace.
const tempPrefix, tempSuffix = ".", ".tmp"

func temporary(name string) string { return tempPrefix + name + tempSuffix }

// Write replaces the content of a file atomically, and makes the directory if necessary. A
// killed writer leaves at most the temporary file, which the next Write or Remove of that
// name removes, or Sweep.
func (d *Dir) Write(name string, data []byte) error {
	path, err := d.check(name)
	if err != nil {
		return err
	}
	if len(data) > limit {
		return tooLarge(path)
	}
	temp, err := d.temp(name)
	if err != nil {
		return err
	}
	if err = d.fill(temp, data); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temp.Name()) // it is the first error that tells
	}
	if closing := temp.Close(); err == nil { // and with it the lock
		err = closing
	}
	if err == nil && d.durable {
		err = d.sync()
	}
	return err
}

func (d *Dir) fill(temp *os.File, data []byte) error {
	if err := temp.Truncate(0); err != nil {
		return err
	}
	if _, err := temp.Write(data); err != nil || !d.durable {
		return err
	}
	return temp.Sync()
}

// sync writes the directory's names to the disk.
func (d *Dir) sync() error {
	dir, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// temp opens and locks the temporary file of a name; it waits for another writer. That one
// may have given the file its final name while we waited, so what is locked must still
// have the temporary one.
func (d *Dir) temp(name string) (*os.File, error) {
	path := d.Path(temporary(name))
	for made := false; ; {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
		if errors.Is(err, fs.ErrNotExist) && !made {
			made = true
			if err = d.Make(); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if err = flock(f, syscall.LOCK_EX); err != nil {
			f.Close()
			return nil, fmt.Errorf("%s: lock: %w", path, err)
		}
		inPlace, err := isAt(f, path)
		if inPlace {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// isAt is false when f has been renamed or removed.
func isAt(f *os.File, path string) (bool, error) {
	open, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(open, there), err
}

// Remove removes a file and what a killed writer of it has left; what is gone already is
// success. If there is nothing, it changes nothing, so it succeeds on a read-only disk.
func (d *Dir) Remove(name string) error {
	path, err := d.check(name)
	if err != nil {
		return err
	}
	if _, err := sweep(d.Path(temporary(name))); err != nil {
		return err
	}
	if _, err = os.Lstat(path); err == nil {
		err = os.Remove(path)
	}
	if err := unlessGone(err); err != nil || !d.durable {
		return err
	}
	return unlessGone(d.sync())
}

// Sweep removes the temporary files that killed writers have left. It calls removed with
// each one's name.
func (d *Dir) Sweep(removed func(name string)) error {
	entries, err := os.ReadDir(d.path)
	if errors.Is(absent(err), fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasPrefix(e.Name(), tempPrefix) || !strings.HasSuffix(e.Name(), tempSuffix) {
			continue
		}
		gone, leftover := sweep(d.Path(e.Name()))
		if gone {
			removed(e.Name())
		}
		err = errors.Join(err, leftover)
	}
	return err
}

func sweep(path string) (gone bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(absent(err), fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) { // its writer lives
		return false, nil
	}
	if err == nil {
		gone, err = isAt(f, path)
	}
	if gone {
		err = os.Remove(path)
	}
	return gone && err == nil, err
}
