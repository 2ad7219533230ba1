package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const tryLock = syscall.LOCK_EX | syscall.LOCK_NB

// Pauses between two attempts to lock. A blocking flock is not used, because it cannot be cancelled and could
// lock the file after the caller has given up.
const (
	firstPause   = 50 * time.Microsecond
	longestPause = 100 * time.Millisecond
	shortPause   = time.Millisecond // the maximum for locks that are held only briefly
)

// BusyError reports that a lock was still held when the caller stopped waiting.
type BusyError struct {
	Path    string
	Waited  time.Duration
	Holders []Process // none = unknown
	Cause   error     // why the context ended; nil = the limit was reached
}

func (e *BusyError) Error() string {
	holders := ""
	for n, p := range e.Holders {
		holders += cmp.Or(map[int]string{0: " by "}[n], " and ") + fmt.Sprintf("process %d (%s)", p.ID, p.Name)
	}
	if e.Cause != nil {
		return fmt.Sprintf("%s: locked%s, and waiting for the lock was cancelled: %v", e.Path, holders, e.Cause)
	}
	return fmt.Sprintf("%s: still locked%s after %v", e.Path, holders, e.Waited)
}

func (e *BusyError) Unwrap() error { return e.Cause }

// Lock opens path for reading and takes an exclusive flock on it. It returns nil if the file does not exist. The
// locked file is at path when Lock returns. The error is a [*BusyError] after the limit or the end of the context, and
// [ErrNotRegular] for a symbolic link. The caller must call [Unlock]. A process that inherits the file keeps the lock after
// the caller's death.
func Lock(ctx context.Context, path string, limit time.Duration) (*os.File, error) {
	return lockPath(ctx, path, limit, 0)
}

// LockFile locks a dedicated lock file, creating it with mode 0600. Do not lock the directory instead if
// non-root users can read it, because they could hold that lock.
func LockFile(ctx context.Context, path string, limit time.Duration) (*os.File, error) {
	return lockPath(ctx, path, limit, os.O_CREATE)
}

func lockPath(ctx context.Context, path string, limit time.Duration, create int) (f *os.File, err error) {
	err = await(ctx, path, limit, longestPause, func() (err error) {
		f, _, err = hold(path, tryLock, func() (*os.File, error) { return open(path, create) })
		return err
	})
	if create == 0 && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// Unlock unlocks and closes f. A daemon that a plugin has left may have inherited f and would keep the lock if
// f were only closed.
func Unlock(f *os.File) {
	if f != nil {
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
	}
}

// Alone calls f while it holds the lock of the directory, which must exist. If the lock stays busy until the
// limit, it returns a [*BusyError]. It locks the directory itself, so it creates no lock file.
func (d *Dir) Alone(limit time.Duration, f func() error) error {
	dir, err := os.OpenFile(d.path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // without O_NONBLOCK, package os needs four more system calls
	if err != nil {
		return err
	}
	defer dir.Close() // also unlocks the directory
	if err := await(context.Background(), d.path, limit, shortPause, func() error { return flock(dir, tryLock) }); err != nil {
		return err
	}
	return f()
}

// ErrNFS is the error of [Lockable] for a directory on NFS.
var ErrNFS = errors.New("is on NFS, which does not support these locks")

// Lockable returns an error if a directory, or its nearest existing ancestor, is on NFS. On NFS, flock(2) needs
// files that are open for writing, but [Lock] and [Dir.Alone] open files and directories for reading.
func Lockable(dir string) error {
	dir, on, err := disk(dir)
	if err != nil {
		return err
	}
	return lockable(dir, on)
}

func lockable(dir string, on syscall.Statfs_t) error {
	const nfs = 0x6969
	if on.Type == nfs {
		return fmt.Errorf("%s: %w", dir, ErrNFS)
	}
	return nil
}

// await calls try until it gets the lock. longest is the maximum pause between two attempts.
func await(ctx context.Context, path string, limit, longest time.Duration, try func() error) error {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longest) {
		err := try()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		left := limit - time.Since(began)
		if left <= 0 {
			return &BusyError{Path: path, Waited: limit, Holders: holders(path)}
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(pause, left)):
		}
		if ctx.Err() != nil {
			return &BusyError{Path: path, Waited: time.Since(began), Cause: context.Cause(ctx)}
		}
	}
}

// A Process holds a lock.
type Process struct {
	ID   int
	Name string // of its program, at most 15 bytes
}

// holders returns the processes that hold the lock of a file, from /proc/PID/fdinfo. It opens no file of another process,
// and finds none that is in another PID namespace.
func holders(path string) (list []Process) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil // it is gone, and no process has it
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, f := range files {
		if target, err := os.Readlink(f); err != nil || target != path {
			continue
		}
		if info, _ := os.ReadFile(strings.Replace(f, "/fd/", "/fdinfo/", 1)); strings.Contains(string(info), "FLOCK") {
			process, _, _ := strings.Cut(strings.TrimPrefix(f, "/proc/"), "/")
			id, _ := strconv.Atoi(process) // only digits
			name, _ := os.ReadFile("/proc/" + process + "/comm")
			list = append(list, Process{id, strings.TrimSpace(string(name))})
		}
	}
	return slices.Compact(list)
}
