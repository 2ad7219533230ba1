package inject

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	none  = -1
	exit  = "exit_group"
	flock = "flock"
)

// shape describes the arguments of a call.
type shape struct {
	name  string
	dir   int // directory that a relative path starts from
	path  int
	fd    int // open file that the call changes
	flags int // flags of open(2); they decide whether the call changes the file
}

// at returns the shape of a call with a directory and a path.
func at(name string, dir int) shape { return shape{name, dir, dir + 1, none, none} }

// on returns the shape of a call on an open file.
func on(name string) shape { return shape{name, none, none, 0, none} }

// by returns the shape of a call with only a path.
func by(name string, path int) shape { return shape{name, none, path, none, none} }

// changes contains the calls that change the file system, and exit_group as the last call. It does not count locks
// and access times as changes.
//
// The maps changes, reads and locks must not contain a call that a program makes between fork and execve. The child
// shares the memory of this process then, so Go's garbage collector would wait for the child, which waits for this
// process.
var changes = map[int32]shape{
	unix.SYS_OPENAT:          {"openat", 0, 1, none, 2},
	unix.SYS_OPENAT2:         at("openat2", 0),
	unix.SYS_WRITE:           on("write"),
	unix.SYS_PWRITE64:        on("pwrite64"),
	unix.SYS_WRITEV:          on("writev"),
	unix.SYS_PWRITEV:         on("pwritev"),
	unix.SYS_PWRITEV2:        on("pwritev2"),
	unix.SYS_SENDFILE:        on("sendfile"),
	unix.SYS_COPY_FILE_RANGE: {"copy_file_range", none, none, 2, none},
	unix.SYS_FTRUNCATE:       on("ftruncate"),
	unix.SYS_FALLOCATE:       on("fallocate"),
	unix.SYS_FSYNC:           on("fsync"),
	unix.SYS_FDATASYNC:       on("fdatasync"),
	unix.SYS_FCHMOD:          on("fchmod"),
	unix.SYS_FCHOWN:          on("fchown"),
	unix.SYS_TRUNCATE:        by("truncate", 0),
	unix.SYS_FCHMODAT:        at("fchmodat", 0),
	unix.SYS_FCHMODAT2:       at("fchmodat2", 0),
	unix.SYS_FCHOWNAT:        at("fchownat", 0),
	unix.SYS_RENAMEAT2:       at("renameat2", 2),
	unix.SYS_LINKAT:          at("linkat", 2),
	unix.SYS_SYMLINKAT:       at("symlinkat", 1),
	unix.SYS_UNLINKAT:        at("unlinkat", 0),
	unix.SYS_MKDIRAT:         at("mkdirat", 0),
	unix.SYS_MKNODAT:         at("mknodat", 0),
	unix.SYS_EXIT_GROUP:      {exit, none, none, none, none},
}

func init() { maps.Copy(changes, older) }

// reads contains the calls that open files, and those that read names, directories and metadata. It lacks reads of
// open files, because files are only replaced as a whole.
var reads = map[int32]shape{
	unix.SYS_OPENAT:     at("openat", 0),
	unix.SYS_READLINKAT: at("readlinkat", 0),
	unix.SYS_NEWFSTATAT: at("newfstatat", 0),
	unix.SYS_STATX:      at("statx", 0),
	unix.SYS_FACCESSAT:  at("faccessat", 0),
	unix.SYS_FACCESSAT2: at("faccessat2", 0),
	unix.SYS_GETDENTS64: on("getdents64"),
}

// inputs contains the calls that read open files, and those on sockets.
var inputs = map[int32]shape{
	unix.SYS_READ:     on("read"),
	unix.SYS_PREAD64:  on("pread64"),
	unix.SYS_CONNECT:  on("connect"),
	unix.SYS_SENDTO:   on("sendto"),
	unix.SYS_SENDMSG:  on("sendmsg"),
	unix.SYS_RECVFROM: on("recvfrom"),
	unix.SYS_RECVMSG:  on("recvmsg"),
	unix.SYS_SETNS:    on("setns"),
}

var locks = map[int32]shape{unix.SYS_FLOCK: on(flock)}

// processOf returns the process of a thread; 0 if the thread no longer exists.
func processOf(tid uint32) (pid int) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if _, rest, ok := strings.Cut(string(status), "\nTgid:"); ok {
		_, _ = fmt.Sscan(rest, &pid)
	}
	return pid
}

// target returns the path of a call, and whether the call counts. Calls on devices, /proc and pipes do not count,
// except on the program's standard output. With [Inputs] /proc and /sys count, and sockets.
func (i *Injector) target(n *notice, program bool) (path string, counts bool) {
	s := i.calls[n.nr]
	proc := fmt.Sprintf("/proc/%d/", n.tid)
	switch {
	case s.name == exit:
		return "", program || i.reading
	case s.fd != none && program && n.args[s.fd] == 1:
		return "standard output", true
	case s.fd != none:
		link := fmt.Sprint(proc, "fd/", n.args[s.fd])
		stat, err := os.Stat(link)
		socket := i.inputs && err == nil && stat.Mode()&os.ModeSocket != 0
		if err != nil || !stat.Mode().IsRegular() && !stat.IsDir() && !socket || n.args[s.fd] == 2 {
			return "", false
		}
		if path, _ = os.Readlink(link); i.inputs {
			return path, true
		}
	default:
		path = named(n, s, proc)
		if i.inputs {
			return path, filepath.IsAbs(path)
		}
	}
	for _, pseudo := range []string{"/proc/", "/sys/", "/dev/"} {
		if strings.HasPrefix(path, pseudo) {
			return path, false
		}
	}
	return path, strings.HasPrefix(path, "/") && (i.reading || s.name != "openat2" || opensToWrite(n, proc))
}

// named returns the absolute path in a call's arguments.
func named(n *notice, s shape, proc string) string {
	path := stringAt(proc, n.args[s.path])
	if filepath.IsAbs(path) {
		return path
	}
	dir := proc + "cwd"
	if s.dir != none && int32(n.args[s.dir]) != unix.AT_FDCWD {
		dir = fmt.Sprint(proc, "fd/", int32(n.args[s.dir]))
	}
	dir, _ = os.Readlink(dir)
	return filepath.Join(dir, path)
}

// opensToWrite reads the flags in struct open_how.
func opensToWrite(n *notice, proc string) bool {
	var how [8]byte
	read(proc, n.args[2], how[:])
	return binary.NativeEndian.Uint64(how[:])&writing != 0
}

// stringAt returns the C string at an address in the stopped thread's memory.
func stringAt(proc string, address uint64) string {
	text := make([]byte, unix.PathMax)
	text = text[:read(proc, address, text)]
	end := bytes.IndexByte(text, 0)
	return string(text[:max(end, 0)])
}

// read returns the number of bytes read, because the next page may not exist.
func read(proc string, address uint64, into []byte) int {
	memory, err := os.Open(proc + "mem")
	if err != nil {
		return 0
	}
	defer memory.Close()
	n, _ := memory.ReadAt(into, int64(address))
	return n
}
