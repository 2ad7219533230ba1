// Package inject runs a program and decides, before each system call by which the
// program would change the file system, whether the call is made, fails, or is never
// made because the program is killed.
//
// The program is any executable, unchanged: seccomp stops the calls of all of its
// threads, so that they are counted together, and of its children, which are told
// apart (seccomp_unotify(2)). It takes Linux 5.19 and CAP_SYS_ADMIN in the user
// namespace, so tests want package linktest around it.
package inject

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call is a system call that is about to be made, or the program's last.
type Call struct {
	N     int    // 1 for the program's first; its children's are counted apart
	Name  string // such as "renameat"; "exit_group" is after all others
	Path  string // what it changes or reads, absolute; the new one of two; "standard output"
	Child bool   // it is a child's
	Lock  Lock   // what a "flock" finds
}

func (c Call) String() string {
	who := "call"
	if c.Child {
		who = "child's call"
	}
	return fmt.Sprintf("%s %d, %s %s", who, c.N, c.Name, c.Path)
}

// Verdict is what becomes of a call. The zero value is that it is made.
type Verdict struct {
	Errno unix.Errno      // it fails by this, without effect; exit_group cannot
	Kill  bool            // SIGKILL for the program, never for a child, whose call is then made
	Hold  <-chan struct{} // it is made when this is closed
}

// Injector runs programs, one at a time. It lives as long as the process.
type Injector struct {
	calls    map[int32]shape // that it stops
	reading  bool
	listener int
	jobs     chan func()
	running  sync.Mutex // held by Run

	mu  sync.Mutex
	now *run // nil while nothing runs
}

// run is one program.
type run struct {
	started chan struct{} // closed once pid is known
	pid     int
	mu      sync.Mutex
	decide  func(Call) Verdict
	calls   [2]int // made by the program, and by its children
	over    bool   // killed, or waited for: nothing is asked any more
}

// Calls are the kinds of calls that decide is asked about.
type Calls int

const (
	Changes Calls = 1 << iota // of the file system, and the program's end
	Reads                     // of names, directories and what is behind them; the ends of children, too
	Locks                     // by flock(2)
)

// New makes a thread whose children are watched. The error says what this machine
// lacks or does not permit.
func New(which Calls) (*Injector, error) {
	i := &Injector{calls: map[int32]shape{}, reading: which&Reads != 0, jobs: make(chan func())}
	for kind, calls := range map[Calls]map[int32]shape{Changes: changes, Locks: locks} {
		if which&kind != 0 {
			maps.Copy(i.calls, calls)
		}
	}
	if i.reading {
		maps.Copy(i.calls, reads) // last: whatever a file is opened for
	}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // the filter is this thread's, and ends with it
		// Package os tries once whether there are pidfds, by a child that would be stopped
		// at its end, before Start is over.
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

// Run starts the program and waits for it, as cmd.Run does. Decide is asked about
// each call, those of children included, never twice at once.
func (i *Injector) Run(cmd *exec.Cmd, decide func(Call) Verdict) error {
	i.running.Lock()
	defer i.running.Unlock()
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
	r.mu.Lock() // what decide has written is the caller's from here on
	defer r.mu.Unlock()
	r.over = true
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

// serve takes the stopped calls. Each is answered on its own: that of a program waits
// until its start, which makes calls itself, is over.
func (i *Injector) serve() {
	for {
		var n notice
		switch err := i.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); {
		case err == nil:
			go i.answer(&n)
		case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINTR): // killed meanwhile
			panic(fmt.Sprintf("seccomp listener: %v", err))
		}
	}
}

func (i *Injector) answer(n *notice) {
	r := reply{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	switch v := i.judge(n); {
	case v.Kill:
		return // of a process that has been killed: it must not be made
	case v.Errno != 0:
		r.flags, r.errno = 0, -int32(v.Errno)
	case v.Hold != nil:
		<-v.Hold
	}
	if err := i.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)); err != nil && !errors.Is(err, unix.ENOENT) {
		panic(fmt.Sprintf("seccomp listener: %v", err))
	}
}

// judge says what becomes of the call itself: Kill is that it is never made.
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
		_ = unix.Kill(r.pid, unix.SIGKILL) // it is not waited for yet, so it is it
		v.Kill = !c.Child
	}
	if c.Name == exit {
		v.Errno = 0
	}
	return v
}

func (i *Injector) ioctl(request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(i.listener), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
