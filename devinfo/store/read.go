package store

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/atomicfile"
)

// ErrTooLarge is the error for a file over the size limit.
var ErrTooLarge = atomicfile.ErrTooLarge

// CorruptError is the error for a file with invalid content. Callers should warn and treat the file as absent.
type CorruptError struct {
	Path string
	Err  error // the parser's error
}

func (e *CorruptError) Error() string { return fmt.Sprintf("%s: corrupt: %v", e.Path, e.Err) }

func (e *CorruptError) Unwrap() error { return e.Err }

// Read returns the content of a file. The error matches fs.ErrNotExist if the file is missing, and ErrTooLarge
// if it exceeds the limit. Read refuses anything except a regular file, and does not block on a FIFO.
func (d *Dir) Read(name string) ([]byte, error) {
	if err := check(name); err != nil {
		return nil, err
	}
	root, err := d.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// os.Root follows links within the directory, even with O_NOFOLLOW.
	stat, err := root.Lstat(name)
	if err != nil {
		return nil, d.wrap(name, "read", err)
	}
	if err := atomicfile.Regular(d.Path(name), stat); err != nil {
		return nil, err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, d.wrap(name, "read", err)
	}
	defer f.Close()
	return atomicfile.Content(f, limit)
}

// Info reads and parses a device-info file. It returns the errors of [Dir.Read] and [Dir.Parse].
func (d *Dir) Info(name string) (*devinfo.Info, error) {
	data, err := d.Read(name)
	if err != nil {
		return nil, err
	}
	return d.Parse(name, data)
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
