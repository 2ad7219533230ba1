package inject

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Lock is the state of a lock before a call of flock(2).
type Lock struct {
	Taken bool // another process has a lock that excludes this one
	Tries bool // the call does not wait, so it fails if the lock is taken
}

// lockOf returns the state of the lock that a call is about to take, see proc_locks(5).
func lockOf(n *notice, pid int) Lock {
	how := int(n.args[1])
	var stat unix.Stat_t
	err := unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", n.tid, n.args[0]), &stat)
	if err != nil || how&unix.LOCK_UN != 0 {
		return Lock{}
	}
	locks, _ := os.ReadFile("/proc/locks")
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
	l := Lock{Tries: how&unix.LOCK_NB != 0}
	for line := range strings.Lines(string(locks)) {
		f := strings.Fields(line) // 1: FLOCK ADVISORY WRITE 4711 00:1b:1234 0 EOF
		if len(f) < 6 || f[1] != "FLOCK" || f[4] == fmt.Sprint(pid) || f[5] != file {
			continue
		}
		l.Taken = l.Taken || f[3] == "WRITE" || how&unix.LOCK_EX != 0
	}
	return l
}
