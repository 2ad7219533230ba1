package link

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/rtnetlink"
)

// NetnsDir is where the runtimes mount the network namespaces of pods.
const NetnsDir = "/var/run/netns"

// ourNetns is the network namespace of the thread that opens it.
const ourNetns = "/proc/thread-self/ns/net"

// CheckNetns returns nil if path is a network namespace. It returns ErrNoNetns if path does not exist or is
// something else. After other errors, such as EACCES or EIO, the network namespace may exist.
//
// After a network namespace ends, its mount point remains as a plain file. A plain file may also be a network
// namespace that is not mounted yet, or whose mount is not visible in this mount namespace: see [SeesMounts].
func CheckNetns(path string) error {
	if err := checkNetns(path); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// checkNetns is CheckNetns without the path in its errors.
func checkNetns(path string) error {
	var stat unix.Statfs_t
	err := unix.Statfs(path, &stat)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %w", ErrNoNetns, err)
	case err != nil:
		return fmt.Errorf("statfs: %w", err)
	case int64(stat.Type) == unix.NSFS_MAGIC:
		return nil
	}
	return fmt.Errorf("%w: not a mount of a network namespace", ErrNoNetns)
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

// NetnsInode returns the inode of a network namespace; 0 = unknown.
func NetnsInode(path string) uint64 {
	var stat unix.Stat_t
	_ = unix.Stat(path, &stat) // which an error leaves empty
	return stat.Ino
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
	ours, err := os.Stat(ourNetns)
	if err != nil {
		return false, err
	}
	its, err := os.Stat(path)
	return err == nil && os.SameFile(ours, its), nil
}

// Within calls f in the network namespace at path, or in the current one if path is "", and returns the error of f. The
// error is ErrNoNetns if path is no network namespace.
func Within(path string, f func() error) error {
	if path == "" {
		return f()
	}
	var err error
	called := false
	refused := ns.WithNetNSPath(path, func(ns.NetNS) error {
		called, err = true, f()
		return nil
	})
	if called {
		return err
	}
	if own, _ := IsOwnNetns(path); own {
		return f() // setns(2) needs CAP_SYS_ADMIN even for the current network namespace
	}
	return entryError(path, refused)
}

// entryError returns the reason why package ns refused to enter the network namespace at path. The package only
// prints the errors of the system, so entryError asks again.
func entryError(path string, refused error) error {
	if err := checkNetns(path); err != nil {
		return err
	}
	err := Elsewhere(func() error {
		there, err := os.Open(path)
		if err != nil {
			return err
		}
		defer there.Close()
		return unix.Setns(int(there.Fd()), unix.CLONE_NEWNET)
	}, func() error { return nil })
	switch {
	case rtnetlink.Absent(err): // a namespace of another kind, or one that has just ended
		return fmt.Errorf("%w: %w", ErrNoNetns, err)
	case err == nil:
		err = refused
	}
	return fmt.Errorf("enter the network namespace: %w", err)
}

// Elsewhere calls f on a thread that enter has moved to another network namespace, and moves the thread back. It returns
// the error of enter or f.
func Elsewhere(enter, f func() error) error {
	result := make(chan error)
	go func() {
		var err error
		defer func() { result <- err }() // also if f ends the goroutine, as a test does that fails
		runtime.LockOSThread()
		here, err := os.Open(ourNetns)
		if err == nil {
			defer here.Close()
			err = enter()
		}
		if err == nil {
			if err = f(); unix.Setns(int(here.Fd()), unix.CLONE_NEWNET) != nil {
				return // the thread ends, unless it is the main thread
			}
		}
		runtime.UnlockOSThread()
	}()
	return <-result
}

// NetnsGone reports whether a network namespace no longer exists, so that the caller may delete its resources. In a
// container, the network namespaces of the host may not be visible; then NetnsGone returns an error.
func NetnsGone(path string) (bool, error) {
	if err := CheckNetns(path); !errors.Is(err, ErrNoNetns) {
		return false, err
	}
	if NetnsNamesProcess(path) {
		if !OnNode() {
			return false, fmt.Errorf("%s names a process, but the processes of the node are not visible here: run this on the node itself, or in a pod with hostPID", path)
		}
		return true, nil
	}
	dir := filepath.Dir(path)
	switch stat, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("%s, where ADD found the network namespace, does not exist: the network namespaces of the node are not visible in a container", dir)
	case err == nil && stat.Sys().(*syscall.Stat_t).Nlink == 0:
		return false, fmt.Errorf("%s was removed on the node, and this container still mounts what was there: restart the container", dir)
	}
	sees, err := SeesMounts(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err == nil && !sees:
		return false, fmt.Errorf("%s is a plain file here, but outside of this container it may be a network namespace: run this on the node itself; "+
			"if this is the node, the file is unused: remove it", path)
	}
	return err == nil, err
}

// inFirst reports whether a process is in the initial PID namespace, in which all processes are visible, and whose inode is
// constant (include/linux/proc_ns.h, PROC_PID_INIT_INO). Without proc none is.
func inFirst(process string) bool {
	var stat unix.Stat_t
	return unix.Stat(process+"/ns/pid", &stat) == nil && stat.Ino == 0xEFFFFFFC
}

// OnNode reports whether processes have the numbers here that they have on the node, as in no container without hostPID.
func OnNode() bool { return inFirst("/proc/self") }

// SeesProcesses reports whether /proc shows all processes of the node to this process, with their network namespaces.
func SeesProcesses() bool { return inFirst("/proc/1") }

// SeesMounts reports whether mounts at path in other mount namespaces propagate to this one, because the mount of path
// is shared or a slave, mount_namespaces(7). If it returns false, as in many containers, an existing network namespace
// may look like a plain file, and callers must not delete anything because of [CheckNetns]. A host without systemd may
// have no shared mounts either.
func SeesMounts(path string) (bool, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	info, err := os.ReadFile(fmt.Sprintf("/proc/thread-self/fdinfo/%d", fd))
	mounts, mountsErr := os.ReadFile("/proc/thread-self/mountinfo")
	if err = cmp.Or(err, mountsErr); err != nil { // hidden, because fs.ErrNotExist means that path does not exist
		return false, fmt.Errorf("find the mount of %s: %v", path, err)
	}
	_, id, _ := strings.Cut(string(info), "mnt_id:")
	id, _, _ = strings.Cut(id, "\n")
	id = strings.TrimSpace(id)
	for line := range strings.Lines(string(mounts)) {
		fields, _, _ := strings.Cut(line, " - ") // the optional fields are before the separator
		if strings.HasPrefix(fields, id+" ") {
			return strings.Contains(fields, " shared:") || strings.Contains(fields, " master:"), nil
		}
	}
	return false, fmt.Errorf("/proc/thread-self/mountinfo does not contain the mount of %s", path)
}
