package inject

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in the kernel's struct seccomp_data.
const (
	offsetNr   = 0
	offsetArch = 4
	offsetArgs = 16 // eight bytes each; the lower four come first on all architectures of calls_*.go
)

// writing are the flags of open(2) that may change or create a file.
const writing = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC | unix.O_TMPFILE&^unix.O_DIRECTORY

// filter returns the BPF program that stops the given calls.
func filter(calls map[int32]shape) []unix.SockFilter {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		anyBit = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		result = unix.BPF_RET | unix.BPF_K
	)
	notify := unix.SockFilter{Code: result, K: unix.SECCOMP_RET_USER_NOTIF}
	allow := unix.SockFilter{Code: result, K: unix.SECCOMP_RET_ALLOW}
	list := []unix.SockFilter{
		{Code: load, K: offsetArch}, {Code: equal, K: arch, Jt: 1}, allow,
		{Code: load, K: offsetNr},
	}
	for nr, s := range calls {
		block := []unix.SockFilter{notify}
		if s.flags != none {
			block = []unix.SockFilter{{Code: load, K: uint32(offsetArgs + 8*s.flags)}, {Code: anyBit, K: writing, Jf: 1}, notify, allow}
		}
		list = append(list, unix.SockFilter{Code: equal, K: uint32(nr), Jf: uint8(len(block))})
		list = append(list, block...)
	}
	return append(list, allow)
}

// listen installs the filter for the calling thread and its future children.
func listen(calls map[int32]shape) (listener int, err error) {
	if arch == 0 {
		return 0, errors.New("no table of system calls for " + runtime.GOARCH)
	}
	list := filter(calls)
	program := unix.SockFprog{Len: uint16(len(list)), Filter: &list[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER |
		// Without it a preemption signal of Go interrupts the call, and its repetition counts as another call.
		unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	switch errno {
	case 0:
		return int(fd), nil
	case unix.EINVAL, unix.ENOSYS:
		return 0, fmt.Errorf("seccomp: %w (it takes Linux 5.19)", errno)
	case unix.EBUSY:
		return 0, fmt.Errorf("seccomp: %w (somebody listens already, such as a container runtime)", errno)
	}
	return 0, fmt.Errorf("seccomp: %w", errno)
}
