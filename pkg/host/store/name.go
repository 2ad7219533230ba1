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
)

const maxName = 255 // the kernel's limit, in bytes

func (d *Dir) check() error {
	if !filepath.IsAbs(d.path) {
		return fmt.Errorf("directory %q: must be an absolute path", d.path)
	}
	return nil
}

// join returns the path of a file in the directory. For a name that [CheckName] refuses, the error is a [*NameError].
func (d *Dir) join(name string) (string, error) {
	if err := d.check(); err != nil {
		return "", err
	}
	if err := CheckName(name); err != nil {
		return "", &NameError{name, err}
	}
	return d.Path(name), nil
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

// Name is the inverse of [Dir.Path] for a path that another program has chosen. It returns the name of the file
// at path, which must be absolute and lead to a file directly in the directory. The file need not exist. Links
// are resolved: if /var/run links to /run, both spellings work.
//
// Any other path is a [*NameError]. So is a name with control characters or invalid UTF-8, although the other
// methods accept such names so that these files can be removed. If a link on the path cannot be followed, Name
// returns the system's error.
func (d *Dir) Name(path string) (string, error) {
	if err := d.check(); err != nil {
		return "", err
	}
	name, err := d.nameOf(path)
	switch errno := syscall.Errno(0); {
	case err == nil:
		return name, nil
	case errors.As(err, &errno) && !slices.Contains(pathErrors, errno):
		return "", fmt.Errorf("%q: %w", path, err)
	}
	return "", &NameError{Name: path, Err: err}
}

func (d *Dir) nameOf(path string) (string, error) {
	slash := strings.LastIndexByte(path, '/')
	parent, name := filepath.Clean("/"+path[:max(0, slash)]), path[slash+1:]
	ours, err := d.path, CheckName(name)
	switch {
	case !filepath.IsAbs(path):
		err = errors.New("must be an absolute path")
	case slices.Contains(strings.Split(path, "/"), ".."):
		err = errors.New(`must not contain ".."`)
	case err == nil && (strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name)):
		err = errors.New("a file name must be UTF-8 without control characters")
	}
	if err == nil && ours != parent {
		ours, err = canonical(ours)
	}
	if err == nil && ours != parent {
		parent, err = canonical(parent)
	}
	if err == nil && ours != parent {
		err = fmt.Errorf("must be directly in %s", d.path)
	}
	return name, err
}

// pathErrors are errors of the path itself, not of the machine. The kernel returns EINVAL for a path with a NUL.
var pathErrors = []syscall.Errno{syscall.ENOTDIR, syscall.ENAMETOOLONG, syscall.ELOOP, syscall.EINVAL}

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
