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
)

// Unexposed returns an error if users other than root can replace a directory or its contents. Each directory on the
// path, and on the targets of links in it, must belong to root and must not be writable for group or other users. The
// sticky bit is not enough: after an element of the path is deleted, as in a reboot, any user can create it. A missing
// element is not an error, because only root can create it.
func Unexposed(dir string) error { return UnexposedBelow("/", dir) }

// UnexposedBelow is Unexposed for a root directory that is mounted at root. dir, links and the error are
// relative to that root.
func UnexposedBelow(root, dir string) error {
	return walk(root, dir, func(at string, stat fs.FileInfo, _ bool) error {
		switch {
		case stat.Mode()&fs.ModeSymlink != 0:
			return nil
		case !stat.IsDir():
			return notDirectory(at)
		}
		return exposedBy(at, stat, stat.Mode().Perm()&0o022 != 0)
	})
}

// Own returns an error if users other than root and this process's can replace a directory or its contents, or those of
// the named directories in it. In contrast to [Unexposed], a directory above it may have the sticky bit, as /tmp has: others
// cannot replace what is in it, and what they create after a deletion is theirs, which Own refuses. A missing directory, or
// a file in its place, is not an error.
func Own(dir string, names ...string) error {
	visit := func(at string, stat fs.FileInfo, last bool) error {
		open := stat.Mode()&fs.ModeSymlink == 0 && stat.Mode().Perm()&0o022 != 0
		return exposedBy(at, stat, open && (last || stat.Mode()&fs.ModeSticky == 0))
	}
	err := walk("/", dir, visit)
	for n := 0; n < len(names) && err == nil; n++ {
		path := filepath.Join(dir, names[n])
		var stat fs.FileInfo
		if stat, err = os.Lstat(path); err == nil && stat.Mode()&fs.ModeSymlink != 0 {
			err = walk("/", path, visit)
		} else if err == nil {
			err = visit(path, stat, true)
		}
		err = UnlessGone(err)
	}
	return UnlessGone(err)
}

// walk calls visit for each element of a path and of the targets of links in it, also for the links. last is true for the
// directory that the path leads to. walk ends without an error at a missing element.
func walk(root, dir string, visit func(at string, stat fs.FileInfo, last bool) error) error {
	if err := Open(dir).check(); err != nil {
		return err
	}
	const mostLinks = 40 // the kernel's limit
	at, rest := "/", elements(dir)
	for links := 0; links <= mostLinks; {
		stat, err := os.Lstat(filepath.Join(root, at))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		link := stat.Mode()&fs.ModeSymlink != 0
		if err := visit(at, stat, len(rest) == 0 && !link); err != nil || len(rest) == 0 && !link {
			return err
		}
		if link {
			target, err := os.Readlink(filepath.Join(root, at))
			if err != nil {
				return err
			}
			if at = filepath.Dir(at); filepath.IsAbs(target) {
				at = "/"
			}
			links++
			rest = append(elements(target), rest...)
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

// exposedBy returns an error if the mode or the owner lets others replace the contents of a directory, or the target of a
// link. In a user namespace, the directories of the host's root belong to an unmapped user.
func exposedBy(path string, stat fs.FileInfo, mode bool) error {
	const others = "users other than root can replace its contents"
	raw, ok := stat.Sys().(*syscall.Stat_t)
	switch {
	case mode:
		return fmt.Errorf("%s has mode %s: %s", path, stat.Mode(), others)
	case ok && raw.Uid != 0 && int(raw.Uid) != os.Geteuid() && path != "/" && !isUnmapped(raw.Uid):
		return fmt.Errorf("%s belongs to user %d: %s", path, raw.Uid, others)
	}
	return nil
}

// isUnmapped reports whether a user may be one that this user namespace does not map.
func isUnmapped(uid uint32) bool {
	const overflow = 65534 // kernel.overflowuid
	users, err := os.ReadFile("/proc/self/uid_map")
	return uid == overflow && err == nil && !slices.Equal(strings.Fields(string(users)), []string{"0", "0", "4294967295"})
}
