package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"devinfo-cni.io/devinfo/atomicfile"
)

// Unexposed returns an error if anybody but root can put something else in the place of a
// directory, or into it: each directory on the way, through links, must be root's, and not
// writable for group or others. The error names the first that is not. The sticky bit does
// not help: once an element is gone, as after a reboot, anybody may make it anew. What is
// missing is no error, for then only root can make it.
func Unexposed(dir string) error { return UnexposedBelow("/", dir) }

// UnexposedBelow is Unexposed for a root directory that is mounted somewhere: dir, and the
// error, are as those see it who have it as their root.
func UnexposedBelow(root, dir string) error {
	if err := atomicfile.CheckDir(dir); err != nil {
		return err
	}
	const mostLinks = 40 // as in the kernel
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

func elements(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// unexposed judges one directory. Who owns the root directory does not matter: it has the
// whole node, and in a user namespace its owner is nobody.
func unexposed(dir string, stat fs.FileInfo) error {
	const others = "users other than root can replace its contents"
	raw, ok := stat.Sys().(*syscall.Stat_t)
	switch {
	case !stat.IsDir():
		return fmt.Errorf("%s: %w", dir, syscall.ENOTDIR)
	case stat.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s has mode %s: %s", dir, stat.Mode(), others)
	case ok && raw.Uid != 0 && dir != "/":
		return fmt.Errorf("%s belongs to user %d: %s", dir, raw.Uid, others)
	}
	return nil
}
