package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"devinfo-cni.io/devinfo"
)

// ErrNotRegular is the error for anything except a regular file.
var ErrNotRegular = errors.New("not a regular file")

// ErrTooLarge is the error for a file over the size limit.
var ErrTooLarge = errors.New("too large")

// CorruptError is the error for a file with invalid content. Callers should warn and treat the file as absent.
type CorruptError struct {
	Path string
	Err  error // the parser's error
}

func (e *CorruptError) Error() string { return fmt.Sprintf("%s: corrupt: %v", e.Path, e.Err) }

func (e *CorruptError) Unwrap() error { return e.Err }

// Read returns the content of a file. The error matches fs.ErrNotExist if the file is missing, [ErrTooLarge] if it exceeds
// the limit, and [ErrNotRegular] for anything except a regular file. Read does not block on a FIFO.
func (d *Dir) Read(name string) ([]byte, error) {
	path, err := d.join(name)
	if err != nil {
		return nil, err
	}
	f, err := open(path, 0)
	if err != nil {
		return nil, d.wrap(name, "read", err)
	}
	defer f.Close()
	data, err := d.Content(f)
	return data, d.wrap(name, "read", err)
}

// Content is Read for an open file at offset 0.
func (d *Dir) Content(f *os.File) ([]byte, error) { return content(f, d.limit) }

// open opens a file for reading, and creates it if create is os.O_CREATE. It does not block on a named pipe. The error for
// a symbolic link is ErrNotRegular.
func open(path string, create int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|create|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	switch {
	case errors.Is(err, syscall.ELOOP):
		if stat, unseen := os.Lstat(path); unseen == nil { // else the loop is above the file, which may exist
			err = fmt.Errorf("%s: %w (mode %s)", path, ErrNotRegular, stat.Mode())
		}
		return nil, err
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%w (%w)", fs.ErrNotExist, err)
	}
	return f, err
}

// ReadFile returns the content of the file at a path, which may be a symbolic link. Its errors are those of [Dir.Read].
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return content(f, limit)
}

func content(f *os.File, limit int64) ([]byte, error) {
	stat, err := f.Stat()
	if err == nil && !stat.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w (mode %s)", f.Name(), ErrNotRegular, stat.Mode())
	}
	if err == nil {
		err = checkSize(f.Name(), stat.Size(), limit)
	}
	if err != nil {
		return nil, err
	}
	var data bytes.Buffer
	data.Grow(int(stat.Size()) + bytes.MinRead)
	if _, err := data.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	}
	return data.Bytes(), checkSize(f.Name(), int64(data.Len()), limit) // the file may have grown
}

// checkSize returns ErrTooLarge if size exceeds limit, which must be a multiple of 1 MiB.
func checkSize(path string, size, limit int64) error {
	if size > limit {
		return fmt.Errorf("%s: %w: more than %d MiB", path, ErrTooLarge, limit>>20)
	}
	return nil
}

// Info reads and validates a device-info file. It returns the errors of [Dir.Read] and [Dir.Parse], and a
// [*devinfo.InvalidError] for a file that breaks the specification.
func (d *Dir) Info(name string) (*devinfo.Info, error) {
	data, err := d.Read(name)
	if err != nil {
		return nil, err
	}
	info, err := d.Parse(name, data)
	if err != nil {
		return nil, err
	}
	if bad := info.Validate().Errors(); len(bad) > 0 {
		return nil, &devinfo.InvalidError{Path: d.Path(name), Violations: bad}
	}
	return info, nil
}

// Parse parses the content of a device-info file. Empty or invalid content is a [*CorruptError]. Content with
// another major version is a [*devinfo.VersionError]; do not overwrite such a file.
func (d *Dir) Parse(name string, data []byte) (*devinfo.Info, error) {
	info, err := devinfo.Parse(data)
	var version *devinfo.VersionError
	switch {
	case errors.As(err, &version):
		return nil, fmt.Errorf("%s: %w", d.Path(name), err)
	case err != nil:
		return nil, &CorruptError{d.Path(name), err}
	}
	return info, nil
}

// Write atomically replaces the content of the file, or a symbolic link with that name, and makes the directory if
// necessary. Concurrent writers of one name wait for each other. A killed writer leaves at most a temporary file, which the
// next Write or Remove of that name, or Sweep, removes.
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
	path, err := d.join(name)
	if err != nil {
		return nil, err
	}
	if err := checkSize(path, int64(len(data)), d.limit); err != nil {
		return nil, err
	}
	var f *os.File
	err = d.inside(func() (err error) {
		f, err = Replace(d.path, path, func(temp *os.File) error { return d.fill(temp, data) })
		return d.wrap(name, "write", err)
	})
	if err != nil || !d.durable {
		return f, err
	}
	if err := SyncDir(d.path); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (d *Dir) fill(temp *os.File, data []byte) error {
	_, err := temp.Write(data)
	if mode := d.mode &^ 0o111; err == nil && mode != tempMode {
		err = temp.Chmod(mode)
	}
	if err == nil && d.durable {
		err = temp.Sync()
	}
	return err
}

// Link creates a symbolic link. It fails with fs.ErrExist if the name exists.
func (d *Dir) Link(name, target string) error {
	path, err := d.join(name)
	if err != nil {
		return err
	}
	return d.inside(func() error { return os.Symlink(target, path) })
}

// Remove removes the file or symbolic link with that name, and the temporary file of a killed writer. Missing files are not
// an error, even on a read-only disk. In a private directory it also removes an empty directory that is in the way.
func (d *Dir) Remove(name string) error {
	path, err := d.join(name)
	if err != nil {
		return err
	}
	shared := d.mode&0o005 != 0 // with programs that may have made a directory of this name, which os.Remove removes if it is empty
	if stat, err := os.Lstat(path); shared && err == nil && stat.IsDir() {
		return fmt.Errorf("%s: remove: %w", path, syscall.EISDIR)
	}
	if err := Remove(path); err != nil || !d.durable {
		return d.wrap(name, "remove", err)
	}
	return UnlessGone(SyncDir(d.path))
}

// Sweep removes the temporary files of killed writers and calls removed with the name of each. A running writer holds a
// lock on its file, so Sweep keeps it. It continues after a failure.
func (d *Dir) Sweep(removed func(name string)) error {
	entries, err := d.all()
	errs := []error{err}
	for _, e := range entries {
		if !isTemporary(e) {
			continue
		}
		gone, err := removeLeftover(filepath.Join(d.path, e.Name()))
		if gone {
			removed(e.Name())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
