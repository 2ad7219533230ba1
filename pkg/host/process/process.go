// Package process finds what the processes of a node keep: network namespaces, and open device nodes. It reads the
// processes in a mounted proc, which must be the host's to show all of them. It leaves out what this process may not read.
package process

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Holder is a process that has a device node open.
type Holder struct {
	PID     int
	Command string
	Pod     bool // it has other mounts than the node's first process, or those are not readable
}

func (h Holder) String() string { return fmt.Sprintf("process %d (%s)", h.PID, h.Command) }

// Opened returns the processes that have one of the devices open, by the number of the process. devices are the numbers
// of device nodes as in the attribute dev of sysfs, "10:59". A descriptor that waits in the queue of a socket belongs to no
// process.
func Opened(proc string, devices []string) (holders []Holder, err error) {
	if len(devices) == 0 {
		return nil, nil
	}
	for _, text := range devices {
		if _, err := fmt.Sscanf(text, "%d:%d", new(uint32), new(uint32)); err != nil {
			return nil, fmt.Errorf("%q is not the number of a device: %w", text, err)
		}
	}
	host, _ := os.Readlink(filepath.Join(proc, "1/ns/mnt")) // "" is unlike every other
	err = each(proc, func(dir string) error {
		files, err := descriptors(dir)
		for _, fd := range files {
			node := stat(fd)
			if node.Mode&unix.S_IFMT != unix.S_IFCHR || !slices.Contains(devices, fmt.Sprintf("%d:%d", node.Rdev_major, node.Rdev_minor)) {
				continue
			}
			comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
			h := Holder{Command: strings.TrimSpace(string(comm))}
			h.PID, _ = strconv.Atoi(filepath.Base(dir))
			mounts, _ := os.Readlink(filepath.Join(dir, "ns/mnt"))
			h.Pod = mounts == "" || mounts != host
			holders = append(holders, h)
			break
		}
		return err
	})
	slices.SortFunc(holders, func(a, b Holder) int { return a.PID - b.PID })
	return holders, err
}

// Namespaces returns a path for each network namespace that a thread is in, that a thread has open, or that is mounted.
// It does not find a namespace that only a socket or a descriptor in the queue of a socket keeps.
func Namespaces(proc string) (paths []string, err error) {
	own := stat("/proc/self/ns/net")
	if own.Ino == 0 {
		return nil, errors.New("/proc/self/ns/net: not readable")
	}
	found, mounts := map[uint64]bool{}, map[string]bool{}
	add := func(path string) error {
		at := stat(path)
		if unix.Mkdev(at.Dev_major, at.Dev_minor) != unix.Mkdev(own.Dev_major, own.Dev_minor) || found[at.Ino] { // nsfs has all namespaces
			return nil
		}
		is, err := isNet(path)
		if is {
			paths = append(paths, path)
		}
		found[at.Ino] = err == nil
		return unread(err)
	}
	err = each(proc, func(dir string) error {
		files, err := descriptors(dir)
		for _, path := range append(files, filepath.Join(dir, "ns/net")) {
			err = cmp.Or(err, add(path))
		}
		in, linkErr := os.Readlink(filepath.Join(dir, "ns/mnt"))
		if err = cmp.Or(err, unread(linkErr)); err != nil || mounts[in] {
			return err
		}
		mounts[in] = true
		points, err := mounted(dir)
		for _, at := range points {
			err = cmp.Or(err, add(filepath.Join(dir, "root", at)))
		}
		return err
	})
	return paths, err
}

// unread returns an error, unless it means that a process has ended, that this one may not read it, or that the number of
// an open file has become that of a socket (ENXIO).
func unread(err error) error {
	if slices.ContainsFunc([]error{fs.ErrNotExist, syscall.ESRCH, fs.ErrPermission, unix.ENXIO}, func(of error) bool { return errors.Is(err, of) }) {
		return nil
	}
	return err
}

// stat returns zeros for files whose file system is broken, which are neither device nodes nor namespaces. It does not ask
// the server of a network file system, which might never answer.
func stat(path string) (s unix.Statx_t) {
	_ = unix.Statx(unix.AT_FDCWD, path, unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &s)
	return s
}

func isNet(path string) (bool, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return false, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	return err == nil && kind == unix.CLONE_NEWNET, nil // the file may be another one by now
}

// mounted returns the mount points of network namespaces, as a process sees them.
func mounted(dir string) (paths []string, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "mountinfo"))
	if errors.Is(err, syscall.EINVAL) { // the process is ending (fs/proc_namespace.c, mounts_open_common)
		err = nil
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[3], "net:[") {
			paths = append(paths, unescape.Replace(fields[4]))
		}
	}
	return paths, unread(err)
}

// unescape decodes the characters that mountinfo has as octal numbers (fs/proc_namespace.c, show_mountinfo).
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// each calls f with the directory of each thread that has namespaces or descriptors of its own; others share those of
// the first thread of their process. It returns the first error.
func each(proc string, f func(dir string) error) error {
	processes, err := os.ReadDir(proc)
	for _, p := range processes {
		pid, notProcess := strconv.Atoi(p.Name())
		if notProcess != nil {
			continue
		}
		dir := filepath.Join(proc, p.Name())
		threads, taskErr := os.ReadDir(filepath.Join(dir, "task"))
		err = cmp.Or(err, f(dir), unread(taskErr))
		for _, t := range threads {
			tid, _ := strconv.Atoi(t.Name())
			if at := filepath.Join(dir, "task", t.Name()); tid != pid && !shares(dir, at, pid, tid) {
				err = cmp.Or(err, f(at))
			}
		}
	}
	return err
}

// shares reports whether a thread shares the descriptors, the network and the mounts of its process.
func shares(process, thread string, pid, tid int) bool {
	for _, ns := range []string{"ns/net", "ns/mnt"} {
		a, _ := os.Readlink(filepath.Join(process, ns))
		if b, err := os.Readlink(filepath.Join(thread, ns)); unread(err) != nil || err == nil && a != b {
			return false
		}
	}
	const files = 2 // KCMP_FILES
	differ, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(tid), files, 0, 0, 0)
	return errno == 0 && differ == 0 || errors.Is(errno, syscall.ESRCH)
}

// descriptors returns the paths of the open files of a process.
func descriptors(dir string) (paths []string, err error) {
	list, err := os.ReadDir(filepath.Join(dir, "fd"))
	for _, fd := range list {
		paths = append(paths, filepath.Join(dir, "fd", fd.Name()))
	}
	return paths, unread(err)
}
