package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"devinfo-cni.io/devinfo/atomicfile"
)

// NameError says that a name or a path does not name a file directly in the
// directory.
type NameError struct {
	Name string // the name or path
	Err  error  // why
}

func (e *NameError) Error() string { return fmt.Sprintf("%q: %v", e.Name, e.Err) }

func (e *NameError) Unwrap() error { return e.Err }

func check(name string) error {
	if err := atomicfile.CheckName(name); err != nil {
		return &NameError{name, err}
	}
	return nil
}

// Name is the inverse of [Dir.Path], for a path that others have chosen. It takes any
// absolute path of a file directly in the directory, which need not exist: with
// /var/run linked to /run, for example, either spelling. Everything else is a
// [*NameError], as is a name that cannot be shown as it is, because it has control
// characters or is not UTF-8; the other methods accept that, to remove such a file. If a
// link on the path cannot be followed, it returns that error.
func (d *Dir) Name(path string) (string, error) {
	if err := atomicfile.CheckDir(d.dir); err != nil {
		return "", err
	}
	if !filepath.IsAbs(path) {
		return "", &NameError{path, errors.New("must be an absolute path")}
	}
	if slices.Contains(strings.Split(path, "/"), "..") {
		return "", &NameError{path, errors.New(`must not hold ".."`)}
	}
	slash := strings.LastIndexByte(path, '/')
	parent, name := filepath.Clean("/"+path[:slash]), path[slash+1:]
	if err := atomicfile.CheckName(name); err != nil {
		return "", &NameError{path, err}
	}
	if strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name) {
		return "", &NameError{path, errors.New("a file name must be UTF-8 without control characters")}
	}
	same, err := d.is(parent)
	if err == nil && !same {
		err = fmt.Errorf("must be directly in %s", d.dir)
	}
	switch errno := syscall.Errno(0); {
	case err == nil:
		return name, nil
	case errors.As(err, &errno) && !slices.Contains(pathErrors, errno):
		return "", fmt.Errorf("%q: %w", path, err)
	}
	return "", &NameError{path, err}
}

// pathErrors are those for which the path is to blame, and not the machine; EINVAL is of
// one with a NUL.
var pathErrors = []syscall.Errno{syscall.ENOTDIR, syscall.ENAMETOOLONG, syscall.ELOOP, syscall.EINVAL}

// is compares two clean paths, by name if that will do.
func (d *Dir) is(dir string) (bool, error) {
	if dir == d.dir {
		return true, nil
	}
	ours, err := canonical(d.dir)
	if err != nil {
		return false, err
	}
	theirs, err := canonical(dir)
	return ours == theirs, err
}

// canonical follows the links of the part of path that exists.
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
