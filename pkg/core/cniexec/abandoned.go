package cniexec

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/store"
)

// EndAbandoned ends plugins that have outlived both their caller and their limit. A caller that is killed can no longer
// enforce [Exec.Limit], and its plugin may hang for ever. holders are the processes that hold the lock of [Exec.Inherit]. mark
// is an element of [Exec.Env] that names the attachment, so a process that has it in its environment is a plugin or a
// child of one.
//
// EndAbandoned returns false and ends nothing if one of the processes does not have the mark, because then the caller is
// alive, or if none has run for the limit. Otherwise all get SIGTERM, and after 10 s SIGKILL. They may leave their work
// half done, as plugins do that reach the limit of a living caller; a DEL undoes it.
func EndAbandoned(holders []store.Process, mark string, limit time.Duration) (ended bool, err error) {
	var plugins []process
	defer func() {
		for _, p := range plugins {
			unix.Close(p.fd)
		}
	}()
	late := false
	for _, h := range holders {
		fd, err := unix.PidfdOpen(h.ID, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("process %d (%s): pidfd_open: %w", h.ID, h.Name, err)
		}
		p := process{h.ID, fd}
		plugins = append(plugins, p)
		has, age, err := p.look(mark)
		if err != nil || !has {
			return false, err
		}
		late = late || age >= limit
	}
	if !late {
		return false, nil
	}
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		for _, p := range plugins {
			_ = unix.PidfdSendSignal(p.fd, signal, nil, 0) // fails only if it has ended
		}
		end := time.Now().Add(lastWords)
		if !slices.ContainsFunc(plugins, func(p process) bool { return !p.ended(time.Until(end)) }) {
			return true, nil
		}
	}
	return false, errors.New("a process still runs after SIGKILL: find out why the kernel cannot end it")
}

// process is a process that cannot be mistaken for a later one with the same ID.
type process struct{ pid, fd int }

// look reports whether the process has the mark in its environment, and how long it has run.
func (p process) look(mark string) (has bool, age time.Duration, err error) {
	dir := fmt.Sprintf("/proc/%d/", p.pid)
	env, envErr := os.ReadFile(dir + "environ")
	stat, err := os.ReadFile(dir + "stat")
	if p.ended(0) { // the files were perhaps another process'
		return true, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // from the third one; the second may have blanks
	if len(fields) < 20 {
		return false, 0, fmt.Errorf("%sstat: %q: too short", dir, stat)
	}
	if envErr != nil {
		const exiting = 4 // PF_EXITING of linux/sched.h: it has no memory, which others see as ESRCH or EACCES
		if flags, _ := strconv.ParseUint(string(fields[6]), 10, 32); flags&exiting != 0 {
			return true, 0, nil
		}
		return false, 0, envErr
	}
	const ticks = 100                                          // USER_HZ, the same on all architectures of Go
	began, err := strconv.ParseInt(string(fields[19]), 10, 64) // field 22, see proc_pid_stat(5)
	var up unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) // the arguments are valid
	has = slices.ContainsFunc(bytes.Split(env, []byte{0}), func(e []byte) bool { return string(e) == mark })
	return has, time.Duration(up.Nano()) - time.Duration(began)*(time.Second/ticks), err
}

// ended reports whether the process has ended, and waits for that until the timeout.
func (p process) ended(timeout time.Duration) bool {
	for end := time.Now().Add(timeout); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, int(max(0, time.Until(end).Milliseconds())))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}
