package cniexec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Between two tries at a lock. A blocking flock could not be given up: nothing but its
// success ends it, and it would then have a lock that nobody wants any more.
const (
	firstPause   = 5 * time.Millisecond
	longestPause = 100 * time.Millisecond
)

// Wait waits until no plugin holds the lock of an attachment: see [Exec.Lock]. It is for
// a caller that is about to replace or remove that file, or has nothing to run. The
// error is a *[BusyError] after the limit or the end of the context, else the system's.
func Wait(ctx context.Context, path string, limit time.Duration) error {
	f, err := acquire(ctx, path, limit)
	release(f)
	return err
}

// acquire opens and locks the file; nil if there is none.
func acquire(ctx context.Context, path string, limit time.Duration) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	began := time.Now()
	for next := firstPause; ; next = min(2*next, longestPause) {
		f, err := tryLock(path)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return f, err
		}
		left := limit - time.Since(began)
		if left <= 0 {
			return nil, &BusyError{Lock: path, Waited: limit, Holders: holders(path)}
		}
		if err := pause(ctx, min(next, left)); err != nil {
			return nil, &BusyError{Lock: path, Waited: time.Since(began), Cause: err}
		}
	}
}

// tryLock locks the file that is at the path when it has the lock: until then it may be
// replaced, or removed.
func tryLock(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // should it be a named pipe
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			f.Close()
			return nil, &fs.PathError{Op: "flock", Path: path, Err: err}
		}
		current, err := isAt(f, path)
		if err == nil && current {
			return f, nil
		}
		release(f)
		if err != nil {
			return nil, err
		}
	}
}

// isAt says whether the open file is the one at the path.
func isAt(f *os.File, path string) (bool, error) {
	ours, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(ours, there), err
}

// release unlocks by name: a daemon that a plugin left behind has the lock as well as
// we do, by the same open file, and closing ours would leave it that.
func release(f *os.File) {
	if f != nil {
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
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
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || target != path {
			continue
		}
		process := filepath.Dir(filepath.Dir(fd))
		info, _ := os.ReadFile(filepath.Join(process, "fdinfo", filepath.Base(fd)))
		if !strings.Contains(string(info), "FLOCK") {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(process, "comm"))
		list = append(list, fmt.Sprintf("process %s (%s)", filepath.Base(process), strings.TrimSpace(string(name))))
	}
	return strings.Join(list, " and ")
}
