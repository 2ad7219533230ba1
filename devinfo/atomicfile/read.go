package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

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
