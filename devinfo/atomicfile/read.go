package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// ErrNotRegular is the error for anything except a regular file.
var ErrNotRegular = errors.New("not a regular file")

// ErrTooLarge is the error for a file over the size limit.
var ErrTooLarge = errors.New("too large")

// Open opens a file for reading. It does not block on a named pipe. The error for a symbolic link is ErrNotRegular.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s: %w (mode %s)", path, ErrNotRegular, fs.ModeSymlink|fs.ModePerm)
	}
	return f, AsNotExist(err)
}

// Read returns the [Content] of the file that [Open] opens.
func Read(path string, limit int) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Content(f, limit)
}

// ReadFile is Read, but follows a symbolic link.
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
	if err == nil && !stat.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w (mode %s)", f.Name(), ErrNotRegular, stat.Mode())
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

// CheckSize returns ErrTooLarge if size exceeds limit, which must be a multiple of 1 MiB.
func CheckSize(path string, size, limit int) error {
	if size > limit {
		return fmt.Errorf("%s: %w: more than %d MiB", path, ErrTooLarge, limit>>20)
	}
	return nil
}

// UnlessGone returns nil for an error that reports a missing file.
func UnlessGone(err error) error {
	if errors.Is(AsNotExist(err), fs.ErrNotExist) {
		return nil
	}
	return err
}

// AsNotExist converts ENOTDIR, the error of a path that leads through a file, to fs.ErrNotExist.
func AsNotExist(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w (%w)", fs.ErrNotExist, err)
	}
	return err
}

// Entries returns the directory entries whose names do not begin with a dot, sorted. A missing directory has none.
func Entries(dir string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name()[0] == '.' }), UnlessGone(err)
}

// Names returns the names of the regular files among the [Entries].
func Names(dir string) (names []string, err error) {
	entries, err := Entries(dir)
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

const maxName = 255 // the kernel's limit, in bytes

// CheckDir returns an error unless path is absolute.
func CheckDir(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("directory %q: must be an absolute path", path)
	}
	return nil
}

// Join returns the path of a file in a directory, which must be absolute. For a name that [CheckName] refuses, the error
// is a [*NameError].
func Join(dir, name string) (string, error) {
	if err := CheckDir(dir); err != nil {
		return "", err
	}
	if err := CheckName(name); err != nil {
		return "", &NameError{name, err}
	}
	return filepath.Join(dir, name), nil
}

// NameError is the error for a name or path that does not name a file directly in the directory.
type NameError struct {
	Name string // the name or path
	Err  error  // the reason
}

func (e *NameError) Error() string { return fmt.Sprintf("%q: %v", e.Name, e.Err) }
func (e *NameError) Unwrap() error { return e.Err }

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
