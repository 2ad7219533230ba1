package cniexec

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// FindInPath gives the path of a plugin, relative to Root: in the first of the
// directories that has it. The error is an *[Error] for [ReasonMissing].
func (e *Exec) FindInPath(plugin string, dirs []string) (string, error) {
	if plugin == "" || strings.ContainsRune(plugin, '/') {
		return "", failed(ReasonMissing, "CNI plugin %q: type must be the name of an executable", plugin)
	}
	for _, dir := range dirs {
		if path := filepath.Join(dir, plugin); e.hasFile(path) {
			return path, nil
		}
	}
	return "", failed(ReasonMissing, "CNI plugin %q: not installed: it must be in %s", plugin, strings.Join(dirs, " or "))
}

// hasFile says whether a regular file is at a path below Root, to which links in it are
// relative too: a directory of plugins may be one to where the host has another.
func (e *Exec) hasFile(path string) bool {
	if e.Root == "" {
		info, err := os.Stat(path)
		return err == nil && info.Mode().IsRegular()
	}
	root, err := unix.Open(e.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(root)
	file, err := unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 5.6, or below a seccomp profile of then
		info, err := os.Stat(filepath.Join(e.Root, path))
		return err == nil && info.Mode().IsRegular()
	}
	if err != nil {
		return false
	}
	defer unix.Close(file)
	var stat unix.Stat_t
	return unix.Fstat(file, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG
}
