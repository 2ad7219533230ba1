package link

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ourNetns is the network namespace of the thread that opens it.
const ourNetns = "/proc/thread-self/ns/net"

// CheckNetns returns nil if path is a network namespace. It returns ErrNoNetns if path does not exist or is
// something else. After other errors, such as EACCES or EIO, the network namespace may exist.
//
// After a network namespace ends, its mount point remains as a plain file. A plain file may also be a network
// namespace that is not mounted yet, or whose mount is not visible in this mount namespace: see [SeesMounts].
func CheckNetns(path string) error {
	var stat unix.Statfs_t
	err := unix.Statfs(path, &stat)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s: %w: %w", path, ErrNoNetns, err)
	case err != nil:
		return &fs.PathError{Op: "statfs", Path: path, Err: err}
	case int64(stat.Type) == unix.NSFS_MAGIC, int64(stat.Type) == unix.PROC_SUPER_MAGIC && beforeNSFS():
		return nil
	}
	return fmt.Errorf("%s: %w: not a mount of a network namespace", path, ErrNoNetns)
}

// beforeNSFS reports whether namespaces are files of proc, as in kernels before Linux 3.19. Newer ones have nsfs.
func beforeNSFS() bool {
	var stat unix.Statfs_t
	return unix.Statfs(ourNetns, &stat) == nil && int64(stat.Type) == unix.PROC_SUPER_MAGIC
}

// HasNetns reports whether path is a network namespace. It returns no error if [CheckNetns] returns ErrNoNetns.
func HasNetns(path string) (bool, error) {
	err := CheckNetns(path)
	if errors.Is(err, ErrNoNetns) {
		return false, nil
	}
	return err == nil, err
}

// NetnsNamesProcess reports whether path, or its target if it is a symbolic link, names a network namespace by one
// of its processes, such as /proc/4711/ns/net. After the process ends, its number may be reused. A recorded path of
// this kind therefore does not identify the network namespace.
func NetnsNamesProcess(path string) bool {
	const links = 40 // limit of the kernel, path_resolution(7)
	for range links {
		path = filepath.Clean(path)
		if namesProcess(path) {
			return true
		}
		target, err := os.Readlink(path)
		if err != nil {
			return false
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return false
}

// namesProcess recognizes proc at any mount point, such as /host/proc/4711/ns/net.
func namesProcess(path string) bool {
	_, below, ok := strings.Cut(path+"/", "/proc/")
	process, below, _ := strings.Cut(below, "/")
	if process == "self" || process == "thread-self" {
		return ok
	}
	_, err := strconv.ParseUint(process, 10, 32)
	return ok && err == nil && below != ""
}

// IsOwnNetns reports whether path is the current network namespace. It reports false if path does not exist.
func IsOwnNetns(path string) (bool, error) {
	var ours, its unix.Stat_t
	if err := unix.Stat(ourNetns, &ours); err != nil {
		return false, &fs.PathError{Op: "stat", Path: ourNetns, Err: err}
	}
	err := unix.Stat(path, &its)
	return err == nil && its.Dev == ours.Dev && its.Ino == ours.Ino, nil
}

// within calls f in the network namespace at path, or in the current one if path is "".
//
// It does not use github.com/containernetworking/plugins/pkg/ns, for two reasons. That package makes ADD 2.9 % slower,
// because it opens the current namespace twice and makes 24 more system calls. Its errors do not wrap the errors of
// the system calls, so [netnsError] could not recognize EINVAL and ENOTDIR.
func within(path string, f func() error) error {
	if path == "" {
		return f()
	}
	there, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return netnsError(err)
	}
	defer unix.Close(there)

	runtime.LockOSThread()
	lost := false
	defer func() {
		if !lost { // a lost thread stays locked and ends with its goroutine
			runtime.UnlockOSThread()
		}
	}()
	here, err := unix.Open(ourNetns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", ourNetns, err)
	}
	defer unix.Close(here)
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		if own, _ := IsOwnNetns(path); own { // setns needs CAP_SYS_ADMIN even for the current network namespace
			return f()
		}
		return netnsError(err)
	}
	err = f()
	if back := unix.Setns(here, unix.CLONE_NEWNET); back != nil {
		lost = true
		err = errors.Join(err, fmt.Errorf("leave the network namespace: %w", back))
	}
	return err
}

// netnsError classifies an error of opening a path or of setns(2). setns returns EINVAL for a path that is not a
// network namespace.
func netnsError(err error) error {
	if absent(err) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %w", ErrNoNetns, err)
	}
	return fmt.Errorf("enter the network namespace: %w", err)
}
