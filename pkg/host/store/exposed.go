package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Unexposed returns an error if users other than root can replace a directory or its contents. Each directory on the
// path, and on the targets of links in it, must belong to root and must not be writable for group or other users. The
// sticky bit is not enough: after an element of the path is deleted, as in a reboot, any user can create it. A missing
// element is not an error, because only root can create it.
func Unexposed(dir string) error { return UnexposedBelow("/", dir) }

// UnexposedBelow is Unexposed for a root directory that is mounted at root. dir, links and the error are
// relative to that root.
func UnexposedBelow(root, dir string) error {
	if err := Open(dir).check(); err != nil {
		return err
	}
	const mostLinks = 40 // the kernel's limit
	at, rest := "/", elements(dir)
	for links := 0; links <= mostLinks; {
		stat, err := os.Lstat(filepath.Join(root, at))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case stat.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(filepath.Join(root, at))
			if err != nil {
				return err
			}
			if at = filepath.Dir(at); filepath.IsAbs(target) {
				at = "/"
			}
			links++
			rest = append(elements(target), rest...)
		default:
			if err := unexposed(at, stat); err != nil || len(rest) == 0 {
				return err
			}
		}
		if len(rest) > 0 {
			at, rest = filepath.Join(at, rest[0]), rest[1:]
		}
	}
	return fmt.Errorf("%s: %w", dir, syscall.ELOOP)
}

// Own returns an error if users other than root and this process's can change the contents of a directory. It follows
// links, and does not examine the directories above. It returns nil if there is no directory.
func Own(dir string) error {
	stat, err := os.Stat(dir)
	if err != nil || !stat.IsDir() {
		return nil
	}
	return unexposed(dir, stat)
}

func elements(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// unexposed checks one directory. The owner of the root directory does not matter, because it is an unmapped
// user in a user namespace.
func unexposed(dir string, stat fs.FileInfo) error {
	const others = "users other than root can replace its contents"
	raw, ok := stat.Sys().(*syscall.Stat_t)
	switch {
	case !stat.IsDir():
		return fmt.Errorf("%s: %w", dir, syscall.ENOTDIR)
	case stat.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s has mode %s: %s", dir, stat.Mode(), others)
	case ok && raw.Uid != 0 && int(raw.Uid) != os.Geteuid() && dir != "/":
		return fmt.Errorf("%s belongs to user %d: %s", dir, raw.Uid, others)
	}
	return nil
}
