package safefile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"devinfo-cni.io/devinfo/atomicfile"
)

// Between two tries at a lock. A blocking flock could not be given up: nothing but its
// success ends it, and it would then have a lock that nobody wants any more.
const (
	firstPause   = 200 * time.Microsecond
	longestPause = 100 * time.Millisecond
	shortPause   = time.Millisecond // the longest for a lock that nobody has for longer
)

// A BusyError says that somebody else has had a lock for as long as the caller would wait.
type BusyError struct {
	Path    string
	Waited  time.Duration
	Holders string // "process 4711 (macvlan)", as far as we may see them; or ""
	Cause   error  // of the context, which ended the wait; nil = the limit did
}

func (e *BusyError) Error() string {
	holders := ""
	if e.Holders != "" {
		holders = " by " + e.Holders
	}
	if e.Cause != nil {
		return fmt.Sprintf("%s: locked%s, and waiting for the lock was cancelled: %v", e.Path, holders, e.Cause)
	}
	return fmt.Sprintf("%s: still locked%s after %v", e.Path, holders, e.Waited)
}

func (e *BusyError) Unwrap() error { return e.Cause }

// Lock opens a file for reading and locks it (flock, LOCK_EX), once nobody else has it
// locked; nil if there is none. What is locked is at the path at that moment. The error is
// a [*BusyError] after the limit or the end of the context, [ErrNotRegular] for a symbolic
// link, else the system's. The caller ends it by [Unlock]; a process that inherits the
// file keeps it locked after the caller's death.
func Lock(ctx context.Context, path string, limit time.Duration) (*os.File, error) {
	var f *os.File
	err := await(ctx, path, limit, longestPause, func() (err error) {
		f, err = lockAt(path)
		return err
	})
	return f, err
}

// lockAt is Lock without a wait.
func lockAt(path string) (*os.File, error) {
	for {
		f, err := openFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		current := false
		if err = lock(f); err == nil {
			if current, err = IsAt(f, path); current {
				return f, nil
			}
		}
		f.Close() // and with it the lock of what is no longer there
		if err != nil {
			return nil, err
		}
	}
}

// LockFile is [Lock] of a file that is there for its lock, and is made, 0600, if need be. Its
// directory would not do where others than root may read that: they could lock it too.
func LockFile(ctx context.Context, path string, limit time.Duration) (*os.File, error) {
	for {
		made, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		made.Close()
		if f, err := Lock(ctx, path, limit); f != nil || err != nil {
			return f, err
		}
	}
}

// Unlock unlocks by name: a daemon that a plugin left behind has the lock as well as
// we do, by the same open file, and closing ours would leave it that.
func Unlock(f *os.File) {
	if f != nil {
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
	}
}

// IsAt is false when f has been renamed or removed.
func IsAt(f *os.File, path string) (bool, error) {
	is, _, err := atomicfile.IsAt(Files(filepath.Dir(path)), filepath.Base(path), f)
	return is, err
}

// ErrNFS is the error of [Lockable], to be matched by errors.Is.
var ErrNFS = errors.New("is on NFS, which does not support these locks")

// Lockable returns an error if a directory, or its nearest ancestor that exists, is on NFS. There
// flock(2) wants files that are open for writing, which neither a directory nor what [Lock] opens is.
// The argument statfs is syscall.Statfs.
func Lockable(dir string, statfs func(string, *syscall.Statfs_t) error) error {
	const nfs = 0x6969
	var on syscall.Statfs_t
	err := statfs(dir, &on)
	for errors.Is(atomicfile.AsNotExist(err), fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = statfs(dir, &on)
	}
	if err == nil && on.Type == nfs {
		return fmt.Errorf("%s: %w", dir, ErrNFS)
	}
	return err
}

func lock(f *os.File) error { return atomicfile.Flock(f, syscall.LOCK_EX|syscall.LOCK_NB) }

// await tries to get a lock until nobody else has it. A pause between two tries is the longest at most.
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
			return &BusyError{Path: path, Waited: time.Since(began), Cause: context.Cause(ctx)}
		case <-time.After(min(pause, left)):
		}
	}
}

// holders names the processes that hold the lock of a file, by proc(5), fdinfo. It does
// not touch the files that other processes have open.
func holders(path string) string {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	var list []string
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, f := range files {
		if target, err := os.Readlink(f); err != nil || target != path {
			continue
		}
		if info, _ := os.ReadFile(strings.Replace(f, "/fd/", "/fdinfo/", 1)); strings.Contains(string(info), "FLOCK") {
			process, _, _ := strings.Cut(strings.TrimPrefix(f, "/proc/"), "/")
			name, _ := os.ReadFile("/proc/" + process + "/comm")
			list = append(list, fmt.Sprintf("process %s (%s)", process, strings.TrimSpace(string(name))))
		}
	}
	return strings.Join(slices.Compact(list), " and ")
}
