package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Write atomically replaces the content of the file, or a symbolic link of that
// name. Writers of one name wait for each other. A killed writer leaves at most
// the temporary file, which the next Write or Remove of that name removes.
func (d *Dir) Write(name string, data []byte) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := d.checkSize(name, data); err != nil {
		return err
	}
	root, err := d.make()
	if err != nil {
		return err
	}
	defer root.Close()
	temp, err := lock(root, temporary(name))
	if err != nil {
		return d.wrap(name, "lock temporary file", err)
	}
	if err = fill(temp, data); err == nil {
		err = root.Rename(temporary(name), name)
	}
	if err != nil {
		err = first(d.wrap(name, "write", err), root.Remove(temporary(name)))
	}
	return first(err, temp.Close()) // and with it the lock
}

// Remove removes a file, or a symbolic link, and a temporary file that a killed
// writer left. It succeeds if the file, or the directory, is gone already.
func (d *Dir) Remove(name string) error {
	return d.ifThere(name, func(root *os.Root) error {
		if err := d.removeFile(root, name); err != nil {
			return err
		}
		_, err := d.removeLeftover(root, name)
		return err
	})
}

// Sweep removes the temporary files of writers that have died, and calls removed with
// the name of each. A writer that lives holds a lock on its file.
func (d *Dir) Sweep(removed func(name string)) error {
	root, err := d.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		name, ours := final(e.Name())
		if !ours || !e.Type().IsRegular() {
			continue
		}
		gone, leftover := d.removeLeftover(root, name)
		if gone {
			removed(e.Name())
		}
		err = errors.Join(err, leftover)
	}
	return err
}

// ifThere calls f with the directory; there is nothing to do if it is gone.
func (d *Dir) ifThere(name string, f func(*os.Root) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	root, err := d.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return f(root)
}

func (d *Dir) removeLeftover(root *os.Root, name string) (removed bool, err error) {
	removed, err = removeLeftover(root, temporary(name))
	if err != nil {
		return false, d.wrap(name, "remove temporary file", err)
	}
	return removed, nil
}

func (d *Dir) removeFile(root *os.Root, name string) error {
	stat, err := root.Lstat(name)
	if err == nil && stat.IsDir() { // which root.Remove would remove, if empty
		return fmt.Errorf("%s: remove: %w", d.Path(name), syscall.EISDIR)
	}
	if err == nil {
		err = root.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.wrap(name, "remove", err)
	}
	return nil
}

func fill(temp *os.File, data []byte) error {
	if err := temp.Truncate(0); err != nil {
		return err
	}
	if _, err := temp.Write(data); err != nil {
		return err
	}
	return temp.Chmod(fileMode)
}

func first(err, next error) error {
	if err != nil {
		return err
	}
	return next
}

// lock creates the temporary file, or takes over that of a killed process, and
// locks it. Whoever renames or removes it holds the lock, so once it is ours and
// still in its place, it stays there.
func lock(root *os.Root, temp string) (*os.File, error) {
	for {
		// Without O_NONBLOCK Go tries to make it so, by four calls. Without O_EXCL os.Root follows a link that stays inside.
		f, err := root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_RDWR|syscall.O_NONBLOCK, 0o600)
		if errors.Is(err, fs.ErrExist) {
			f, err = reopen(root, temp)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		err = flock(f, syscall.LOCK_EX)
		inPlace := false
		if err == nil {
			inPlace, err = isAt(root, temp, f)
		}
		if inPlace {
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
func reopen(root *os.Root, temp string) (*os.File, error) {
	stat, err := root.Lstat(temp)
	if err != nil {
		return nil, err
	}
	if !ownFile(stat) {
		return nil, first(root.Remove(temp), fs.ErrNotExist)
	}
	f, err := root.OpenFile(temp, os.O_RDWR|syscall.O_NONBLOCK, 0)
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
func ownFile(stat os.FileInfo) bool {
	s, ok := stat.Sys().(*syscall.Stat_t)
	return ok && stat.Mode().IsRegular() && int(s.Uid) == os.Geteuid() && s.Nlink <= 1
}

// removeLeftover creates nothing, so that it works on a full disk, and does not
// wait: a temporary file that is locked is no leftover.
func removeLeftover(root *os.Root, temp string) (removed bool, err error) {
	f, err := reopen(root, temp)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	inPlace := false
	if err == nil {
		inPlace, err = isAt(root, temp, f)
	}
	if err == nil && inPlace {
		err = root.Remove(temp)
	}
	return err == nil && inPlace, err
}

// isAt is false when another writer has renamed or removed f.
func isAt(root *os.Root, name string, f *os.File) (bool, error) {
	open, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(open, there), err
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); err != syscall.EINTR {
			return err
		}
	}
}
