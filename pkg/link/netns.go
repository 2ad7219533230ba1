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

// CheckNetns returns nil if the path is a network namespace, and ErrNoNetns if nothing or
// something else is there. It serves callers that are about to enter the namespace as well
// as those that ask whether it is gone.
//
// A plain file is a namespace that is gone: the mount point that stays after the unmount.
// It may also be one that is not mounted yet, which nobody uses, or one whose mount does
// not reach us: see [SeesMounts].
//
// Every other error, such as EACCES or EIO, says neither.
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
	return fmt.Errorf("%s: %w: it is a file or directory on which none is mounted", path, ErrNoNetns)
}

// beforeNSFS says that the kernel's namespaces are files of proc: until Linux 3.19.
func beforeNSFS() bool {
	var stat unix.Statfs_t
	return unix.Statfs(ourNetns, &stat) == nil && int64(stat.Type) == unix.PROC_SUPER_MAGIC
}

// HasNetns reports whether the path is a network namespace: one that is gone is false
// without an error. See [CheckNetns].
func HasNetns(path string) (bool, error) {
	err := CheckNetns(path)
	if errors.Is(err, ErrNoNetns) {
		return false, nil
	}
	return err == nil, err
}

// NetnsNamesProcess reports whether a path names a network namespace by a process in it,
// such as /proc/4711/ns/net, itself or by a symbolic link. Once the process has ended, its
// number may be another's: a recorded path of that kind says nothing about the namespace
// that it once named.
func NetnsNamesProcess(path string) bool {
	const links = 40 // as many as the kernel follows, path_resolution(7)
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

// namesProcess knows proc wherever it is mounted: /host/proc/4711/ns/net.
func namesProcess(path string) bool {
	_, below, ok := strings.Cut(path+"/", "/proc/")
	process, below, _ := strings.Cut(below, "/")
	if process == "self" || process == "thread-self" {
		return ok
	}
	_, err := strconv.ParseUint(process, 10, 32)
	return ok && err == nil && below != ""
}

// IsOwnNetns reports whether a path leads to the network namespace that we are in; one that
// leads nowhere does not.
func IsOwnNetns(path string) (bool, error) {
	var ours, its unix.Stat_t
	if err := unix.Stat(ourNetns, &ours); err != nil {
		return false, &fs.PathError{Op: "stat", Path: ourNetns, Err: err}
	}
	err := unix.Stat(path, &its)
	return err == nil && its.Dev == ours.Dev && its.Ino == ours.Ino, nil
}

// within calls f in the network namespace at path; "" is where we are.
//
// It does not use github.com/containernetworking/plugins/pkg/ns, which makes ADD 2.9 % slower: it
// opens our namespace twice and, through os.File, makes 24 more system calls. Its errors do not
// wrap those of the system calls, so [netnsError] could not recognise EINVAL and ENOTDIR.
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
		if !lost { // else the thread serves nobody else, and ends with its goroutine
			runtime.UnlockOSThread()
		}
	}()
	here, err := unix.Open(ourNetns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", ourNetns, err)
	}
	defer unix.Close(here)
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		if own, _ := IsOwnNetns(path); own { // for which setns takes CAP_SYS_ADMIN, too
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

// netnsError classifies an error of opening a path or of setns(2), which returns EINVAL for
// anything but a network namespace.
func netnsError(err error) error {
	if absent(err) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %w", ErrNoNetns, err)
	}
	return fmt.Errorf("enter the network namespace: %w", err)
}
