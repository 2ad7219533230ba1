package link

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// SeesMounts says whether what another mount namespace mounts at the path, or has
// mounted there since ours was made, gets to us: the mount that the path is on is
// shared or a slave, mount_namespaces(7). Where it does not, network namespaces that are
// there look like plain files, to a container for one, and no answer of [CheckNetns] is
// a reason to delete anything. A host without systemd may have no shared mounts either.
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
