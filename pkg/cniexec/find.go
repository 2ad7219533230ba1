package cniexec

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// FindInPath returns the path, relative to Root, of the first executable file named plugin in dirs.
// The error is an *[Error] with [ReasonMissing].
func (e *Exec) FindInPath(plugin string, dirs []string) (string, error) {
	if plugin == "" || strings.ContainsRune(plugin, '/') {
		return "", failed(ReasonMissing, "CNI plugin %q: type must be the name of an executable", plugin)
	}
	unfit := ""
	for _, dir := range dirs {
		path := filepath.Join(dir, plugin)
		switch stat, err := e.stat(path); {
		case err != nil || !stat.Mode().IsRegular():
		case stat.Mode()&0o111 != 0:
			return path, nil
		default:
			unfit = cmp.Or(unfit, path)
		}
	}
	if unfit != "" {
		return "", failed(ReasonMissing, "CNI plugin %q: %s is not executable: chmod 0755 it", plugin, unfit)
	}
	return "", failed(ReasonMissing, "CNI plugin %q: not installed in %s", plugin, strings.Join(dirs, " or "))
}

// stat returns the file at a path below Root. It resolves symbolic links relative to Root, because the
// host's plugin directory may be one.
func (e *Exec) stat(path string) (fs.FileInfo, error) {
	if e.Root == "" {
		return os.Stat(path)
	}
	root, err := unix.Open(e.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	file, err := unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // openat2 needs Linux 5.6, and older seccomp profiles forbid it
		return os.Stat(filepath.Join(e.Root, path))
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(file), path)
	defer f.Close()
	return f.Stat()
}
