package link

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// NetnsGone reports whether a network namespace no longer exists, so that the caller may delete its resources. In a
// container, the network namespaces of the host may not be visible; then NetnsGone returns an error.
func NetnsGone(path string) (bool, error) {
	if there, err := HasNetns(path); there || err != nil {
		return false, err
	}
	if NetnsNamesProcess(path) {
		if !seesProcesses() {
			return false, fmt.Errorf("%s names a process, but the processes of the node are not visible here: run this on the node itself, or in a pod with hostPID", path)
		}
		return true, nil
	}
	dir := filepath.Dir(path)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("%s, where ADD found the network namespace, does not exist: the network namespaces of the node are not visible in a container", dir)
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

// seesProcesses reports whether all processes are visible: in the initial PID namespace, whose inode is constant
// (include/linux/proc_ns.h, PROC_PID_INIT_INO), or on a kernel without PID namespaces. It reports false if proc is
// not mounted.
func seesProcesses() bool {
	var stat unix.Stat_t
	err := unix.Stat("/proc/self/ns/pid", &stat)
	if errors.Is(err, fs.ErrNotExist) {
		return unix.Stat("/proc/self/ns", &stat) == nil
	}
	return err == nil && stat.Ino == 0xEFFFFFFC
}

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
	if err != nil {
		return false, err
	}
	_, id, _ := strings.Cut(string(info), "mnt_id:")
	id, _, _ = strings.Cut(id, "\n")
	id = strings.TrimSpace(id)
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(mounts)) {
		fields, _, _ := strings.Cut(line, " - ") // the optional fields are before the separator
		if strings.HasPrefix(fields, id+" ") {
			return strings.Contains(fields, " shared:") || strings.Contains(fields, " master:"), nil
		}
	}
	return false, fmt.Errorf("/proc/thread-self/mountinfo does not contain the mount of %s", path)
}
