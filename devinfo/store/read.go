package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"devinfo-cni.io/devinfo"
)

// ErrTooLarge is the error, to be matched by errors.Is, for a file over the limit.
var ErrTooLarge = errors.New("too large")

// CorruptError says that a file's content is invalid. Callers treat the file as
// absent, and warn.
type CorruptError struct {
	Path string
	Err  error // of the parser
}

func (e *CorruptError) Error() string { return fmt.Sprintf("%s: corrupt: %v", e.Path, e.Err) }

// Unwrap returns Err.
func (e *CorruptError) Unwrap() error { return e.Err }

// Read returns the content of a file. It fails with fs.ErrNotExist if the file is
// missing, and with ErrTooLarge if it is over the limit. It refuses anything but a
// regular file, without waiting for the writer of a FIFO.
func (d *Dir) Read(name string) ([]byte, error) {
	if err := check(name); err != nil {
		return nil, err
	}
	root, err := d.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// os.Root follows links that stay inside, O_NOFOLLOW or not.
	stat, err := root.Lstat(name)
	if err != nil {
		return nil, d.wrap(name, "read", err)
	}
	if !stat.Mode().IsRegular() {
		return nil, d.notRegular(name, stat)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, d.wrap(name, "read", err)
	}
	defer f.Close()
	if stat, err = f.Stat(); err == nil && !stat.Mode().IsRegular() { // since Lstat
		return nil, d.notRegular(name, stat)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, d.wrap(name, "read", err)
	}
	return data, d.checkSize(name, data)
}

// Info reads and parses a device-info file. The errors are those of [Dir.Read]
// and [Dir.Parse].
func (d *Dir) Info(name string) (*devinfo.Info, error) {
	data, err := d.Read(name)
	if err != nil {
		return nil, err
	}
	return d.Parse(name, data)
}

// Parse parses the content of a device-info file. Empty or invalid content is a
// [*CorruptError]; that of another major version is a [*devinfo.VersionError], and
// not corrupt: it must not be overwritten.
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

func (d *Dir) notRegular(name string, stat os.FileInfo) error {
	return fmt.Errorf("%s: not a regular file (mode %s)", d.Path(name), stat.Mode())
}

func (d *Dir) checkSize(name string, data []byte) error {
	if len(data) > limit {
		return fmt.Errorf("%s: %w: more than %d MiB", d.Path(name), ErrTooLarge, limit>>20)
	}
	return nil
}
