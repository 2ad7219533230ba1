// Package inject runs a program and intercepts its system calls that change the file system. A function decides for
// each call whether the kernel makes it, whether it fails, or whether the program is killed before it.
//
// The program is an unchanged executable. seccomp stops the calls of all its threads, which are counted together, and
// of its children, which are counted separately (seccomp_unotify(2)). It needs Linux 5.19, and CAP_SYS_ADMIN in the
// user namespace, which package linktest provides.
package inject

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/difftest"
)

// Call is a system call that is about to be made, or the program's exit.
type Call struct {
	N     int    // number of the call from 1; children are counted separately
	Name  string // such as "renameat"; the last call is "exit_group"
	Path  string // absolute path that the call changes or reads, or "standard output"; the new path if there are two
	Child bool   // a child makes the call
	Lock  Lock   // state of the lock for a "flock"
}

func (c Call) String() string {
	who := "call"
	if c.Child {
		who = "child's call"
	}
	return fmt.Sprintf("%s %d, %s %s", who, c.N, c.Name, c.Path)
}

// Verdict is the decision about a call. The zero value makes the call.
type Verdict struct {
	Errno unix.Errno      // the call fails with this error and has no effect; exit_group cannot fail
	Empty bool            // the call has no effect and returns 0, as a read at the end of a file
	Kill  bool            // kill the program; the call of a child is then made
	Hold  <-chan struct{} // make the call when this is closed
}

// Injector runs programs, one at a time. It exists as long as the process.
type Injector struct {
	calls    map[int32]shape // intercepted calls
	reading  bool
	inputs   bool
	listener int
	jobs     chan func()
	running  sync.Mutex // held by Run

	mu  sync.Mutex
	now *run // nil if no program runs
}

// run is a running program.
type run struct {
	started chan struct{} // closed when pid is known
	pid     int
	mu      sync.Mutex
	decide  func(Call) Verdict
	calls   [2]int // number of calls of the program, and of its children
	over    bool   // killed or waited for: decide is not called any more
}

// Calls selects the calls that are intercepted.
type Calls int

const (
	Changes Calls = 1 << iota // changes of the file system, and the program's exit
	Reads                     // opening files, reading names and directories, and the exits of children
	Locks                     // flock(2)
	Inputs                    // reading open files, sockets, /proc and /sys; only with Reads
)

// New returns an injector. It skips the test if the machine lacks a feature or permission, or fails it if the environment has
// DEVINFO_NETNS=must.
func New(t testing.TB, which Calls) *Injector {
	t.Helper()
	i, err := start(which)
	if err != nil && os.Getenv("DEVINFO_NETNS") != "must" {
		t.Skip(err)
	}
	difftest.Must(t, err)
	return i
}

// start creates a thread whose children are intercepted.
func start(which Calls) (*Injector, error) {
	i := &Injector{calls: map[int32]shape{}, reading: which&Reads != 0, inputs: which&Inputs != 0, jobs: make(chan func())}
	for kind, calls := range map[Calls]map[int32]shape{Changes: changes, Locks: locks, Inputs: inputs} {
		if which&kind != 0 {
			maps.Copy(i.calls, calls)
		}
	}
	if i.reading {
		maps.Copy(i.calls, reads) // last, because it also stops opening for reading
	}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // the filter belongs to this thread, and ends with it
		// Package os tests once whether pidfds work. It starts a child for that, whose exit would be stopped before
		// Start returns.
		_, _ = os.FindProcess(os.Getpid())
		listener, err := listen(i.calls)
		i.listener = listener
		ready <- err
		if err != nil {
			return
		}
		for job := range i.jobs {
			job()
		}
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	go i.serve()
	return i, nil
}

// Run starts the program and waits for it, like cmd.Run, but an exit code is no error. It calls decide for each call of the
// program and its children; nil makes all calls. The calls of decide do not overlap. The program ends with this process.
func (i *Injector) Run(cmd *exec.Cmd, decide func(Call) Verdict) error {
	i.running.Lock()
	defer i.running.Unlock()
	if decide == nil {
		decide = func(Call) Verdict { return Verdict{} }
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r := &run{started: make(chan struct{}), decide: decide}
	i.set(r)
	defer i.set(nil)
	started := make(chan error)
	i.jobs <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return err
	}
	r.pid = cmd.Process.Pid
	close(r.started)
	err := cmd.Wait()
	r.mu.Lock() // from here on the caller may read what decide has written
	defer r.mu.Unlock()
	r.over = true
	if errors.As(err, new(*exec.ExitError)) {
		return nil
	}
	return err
}

func (i *Injector) set(r *run) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.now = r
}

// notice is the kernel's struct seccomp_notif.
type notice struct {
	id   uint64
	tid  uint32
	_    uint32
	nr   int32
	_    uint32
	_    uint64
	args [6]uint64
}

// reply is the kernel's struct seccomp_notif_resp.
type reply struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// serve receives the stopped calls. It answers each in a goroutine, because a call of the program waits until the
// program's start is complete, and starting makes calls too.
func (i *Injector) serve() {
	for {
		var n notice
		switch err := i.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); {
		case err == nil:
			go i.answer(&n)
		case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINTR): // the process was killed in between
			panic(fmt.Sprintf("seccomp listener: %v", err))
		}
	}
}

func (i *Injector) answer(n *notice) {
	r := reply{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	switch v := i.judge(n); {
	case v.Kill:
		return // the process was killed, so the call must not be made
	case v.Errno != 0:
		r.flags, r.errno = 0, -int32(v.Errno)
	case v.Empty:
		r.flags = 0
	case v.Hold != nil:
		<-v.Hold
	}
	if err := i.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)); err != nil && !errors.Is(err, unix.ENOENT) {
		panic(fmt.Sprintf("seccomp listener: %v", err))
	}
}

// judge returns the decision about the call. Kill means that the call is not made.
func (i *Injector) judge(n *notice) Verdict {
	pid := processOf(n.tid)
	i.mu.Lock()
	r := i.now
	i.mu.Unlock()
	if r == nil || pid == os.Getpid() {
		return Verdict{}
	}
	<-r.started
	path, counts := i.target(n, pid == r.pid)
	if !counts {
		return Verdict{}
	}
	c := Call{Name: i.calls[n.nr].name, Path: path, Child: pid != r.pid}
	if c.Name == flock {
		c.Lock = lockOf(n, pid)
	}
	return r.judge(c)
}

func (r *run) judge(c Call) Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return Verdict{Kill: !c.Child}
	}
	count := &r.calls[0]
	if c.Child {
		count = &r.calls[1]
	}
	*count++
	c.N = *count
	v := r.decide(c)
	if v.Kill {
		r.over = true
		_ = unix.Kill(r.pid, unix.SIGKILL) // the process is not waited for yet, so the pid still belongs to it
		v.Kill = !c.Child
	}
	if c.Name == exit {
		v.Errno, v.Empty = 0, false
	}
	return v
}

func (i *Injector) ioctl(request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(i.listener), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

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
