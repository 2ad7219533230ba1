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

// NetnsGone reports whether a network namespace is gone, for a caller that deletes what
// belonged to it and may run in a container. An error means that it cannot be told: one of
// the host's would not be visible from here, or the kernel does not answer.
func NetnsGone(path string) (bool, error) {
	if there, err := HasNetns(path); there || err != nil {
		return false, err
	}
	if NetnsNamesProcess(path) {
		if !seesProcesses() {
			return false, fmt.Errorf("%s names a process, and those of the node cannot be seen from here: look from the node itself, or from a pod with hostPID", path)
		}
		return true, nil
	}
	dir := filepath.Dir(path)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("%s, where ADD found the network namespace, does not exist: a container cannot see the node's", dir)
	}
	sees, err := SeesMounts(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err == nil && !sees:
		return false, fmt.Errorf("%s is a plain file, on which a network namespace may be mounted that is not seen from here: look from the node itself; "+
			"if this is the node, nothing uses the file, and it can be removed", path)
	}
	return err == nil, err
}

// seesProcesses says whether all processes can be seen: in the first PID namespace, whose inode
// is always the same (include/linux/proc_ns.h, PROC_PID_INIT_INO), or where there are none. If proc
// is not mounted, none can.
func seesProcesses() bool {
	var stat unix.Stat_t
	err := unix.Stat("/proc/self/ns/pid", &stat)
	if errors.Is(err, fs.ErrNotExist) {
		return unix.Stat("/proc/self/ns", &stat) == nil
	}
	return err == nil && stat.Ino == 0xEFFFFFFC
}

// SeesMounts reports whether mounts that another mount namespace makes at the path, or has
// made since ours was created, reach us: the mount that the path is on is shared or a slave,
// mount_namespaces(7). If they do not, as in a container, existing network namespaces look
// like plain files, and no answer of [CheckNetns] is a reason to delete anything. A host
// without systemd may have no shared mounts either.
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
		fields, _, _ := strings.Cut(line, " - ") // the optional ones are the last before it
		if strings.HasPrefix(fields, id+" ") {
			return strings.Contains(fields, " shared:") || strings.Contains(fields, " master:"), nil
		}
	}
	return false, fmt.Errorf("%s: its mount is not in /proc/thread-self/mountinfo", path)
}
