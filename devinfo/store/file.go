package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

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
	path, err := atomicfile.Join(d.dir, name)
	if err != nil {
		return nil, err
	}
	data, err := atomicfile.Read(path, limit)
	return data, d.wrap(name, "read", err)
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

// Write atomically replaces the content of the file, or a symbolic link with that name. Concurrent writers of
// one name wait for each other. A killed writer leaves at most a temporary file; the next Write or Remove of
// the same name removes it.
func (d *Dir) Write(name string, data []byte) error {
	path, err := atomicfile.Join(d.dir, name)
	if err != nil {
		return err
	}
	if err := atomicfile.CheckSize(path, len(data), limit); err != nil {
		return err
	}
	if err := d.Make(); err != nil {
		return err
	}
	f, err := atomicfile.Replace(path, func(temp *os.File) error {
		if _, err := temp.Write(data); err != nil {
			return err
		}
		return temp.Chmod(fileMode)
	})
	if err != nil {
		return d.wrap(name, "write", err)
	}
	return f.Close() // releases the lock
}

// Remove removes the file or symbolic link with that name, and the temporary file of a killed writer. It
// succeeds if the file or the directory does not exist.
func (d *Dir) Remove(name string) error {
	path, err := atomicfile.Join(d.dir, name)
	if err != nil {
		return err
	}
	if stat, err := os.Lstat(path); err == nil && stat.IsDir() { // os.Remove would remove an empty one
		return fmt.Errorf("%s: remove: %w", path, syscall.EISDIR)
	}
	return d.wrap(name, "remove", atomicfile.Remove(path))
}

// Sweep removes the temporary files of dead writers and calls removed with the name of each. A running writer
// holds a lock on its file, so Sweep keeps it.
func (d *Dir) Sweep(removed func(name string)) error {
	if err := atomicfile.CheckDir(d.dir); err != nil {
		return err
	}
	return atomicfile.Sweep(d.dir, removed)
}

// NameError is the error for a name or path that does not name a file directly in the directory. Its fields are Name,
// the name or path, and Err, the reason.
type NameError = atomicfile.NameError

// Name is the inverse of [Dir.Path] for a path that another program has chosen. It returns the name of the file
// at path, which must be absolute and lead to a file directly in the directory. The file need not exist. Links
// are resolved: if /var/run links to /run, both spellings work.
//
// Any other path is a [*NameError]. So is a name with control characters or invalid UTF-8, although the other
// methods accept such names so that these files can be removed. If a link on the path cannot be followed, Name
// returns the system's error.
func (d *Dir) Name(path string) (string, error) {
	if err := atomicfile.CheckDir(d.dir); err != nil {
		return "", err
	}
	if !filepath.IsAbs(path) {
		return "", &NameError{Name: path, Err: errors.New("must be an absolute path")}
	}
	if slices.Contains(strings.Split(path, "/"), "..") {
		return "", &NameError{Name: path, Err: errors.New(`must not contain ".."`)}
	}
	slash := strings.LastIndexByte(path, '/')
	parent, name := filepath.Clean("/"+path[:slash]), path[slash+1:]
	if err := atomicfile.CheckName(name); err != nil {
		return "", &NameError{Name: path, Err: err}
	}
	if strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name) {
		return "", &NameError{Name: path, Err: errors.New("a file name must be UTF-8 without control characters")}
	}
	same, err := parent == d.dir, error(nil)
	if !same {
		same, err = d.is(parent)
	}
	if err == nil && !same {
		err = fmt.Errorf("must be directly in %s", d.dir)
	}
	switch errno := syscall.Errno(0); {
	case err == nil:
		return name, nil
	case errors.As(err, &errno) && !slices.Contains(pathErrors, errno):
		return "", fmt.Errorf("%q: %w", path, err)
	}
	return "", &NameError{Name: path, Err: err}
}

// pathErrors are errors of the path itself, not of the machine. The kernel returns EINVAL for a path with a NUL.
var pathErrors = []syscall.Errno{syscall.ENOTDIR, syscall.ENAMETOOLONG, syscall.ELOOP, syscall.EINVAL}

func (d *Dir) is(dir string) (bool, error) {
	ours, err := canonical(d.dir)
	if err != nil {
		return false, err
	}
	theirs, err := canonical(dir)
	return ours == theirs, err
}

// canonical resolves the links in the existing part of path.
func canonical(path string) (string, error) {
	for rest := ""; ; path = filepath.Dir(path) {
		found, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(found, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		rest = filepath.Join(filepath.Base(path), rest)
	}
}
