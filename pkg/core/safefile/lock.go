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
	"devinfo-cni.io/devinfo/store"
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
	Holders string // such as "process 4711 (macvlan)"; "" = unknown
	Cause   error  // why the context ended; nil = the limit was reached
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

// Lock opens path for reading and takes an exclusive flock on it. It returns nil if the file does not exist. The
// locked file is at path when Lock returns. The error is a [*BusyError] after the limit or the end of the context, and
// [atomicfile.ErrNotRegular] for a symbolic link. The caller must call [Unlock]. A process that inherits the file keeps the lock
// after the caller's death.
func Lock(ctx context.Context, path string, limit time.Duration) (*os.File, error) {
	var f *os.File
	err := await(ctx, path, limit, longestPause, func() (err error) {
		f, err = lockAt(path)
		return err
	})
	return f, err
}

func lockAt(path string) (*os.File, error) {
	for {
		f, err := atomicfile.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		current := false
		if err = atomicfile.Flock(f, tryLock); err == nil {
			if current, _, err = atomicfile.IsAt(f, path); current {
				return f, nil
			}
		}
		f.Close() // also unlocks the file, which was renamed or removed
		if err != nil {
			return nil, err
		}
	}
}

// LockFile locks a dedicated lock file, creating it with mode 0600. Do not lock the directory instead if
// non-root users can read it, because they could hold that lock.
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

// Unlock unlocks and closes f. A daemon that a plugin has left may have inherited f and would keep the lock if
// f were only closed.
func Unlock(f *os.File) {
	if f != nil {
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
	}
}

// ErrNFS is the error of [Lockable] for a directory on NFS.
var ErrNFS = errors.New("is on NFS, which does not support these locks")

// Lockable returns an error if a directory, or its nearest existing ancestor, is on NFS. On NFS, flock(2) needs
// files that are open for writing, but [Lock] and [Dir.Alone] open files and directories for reading. statfs
// is syscall.Statfs.
func Lockable(dir string, statfs func(string, *syscall.Statfs_t) error) error {
	const nfs = 0x6969
	dir, on, err := disk(dir, statfs)
	if err == nil && on.Type == nfs {
		return fmt.Errorf("%s: %w", dir, ErrNFS)
	}
	return err
}

// mostFiles is more than the number of files and directories that an ADD creates in the state directory: the entry, its
// temporary file, libcni's cache, and a directory and a link for each of up to six leases. A claim of a few devices
// creates fewer.
const mostFiles = 32

// Writable returns an error unless the files of an ADD or a claim can be written in the directory, or in its nearest
// existing ancestor. It changes nothing. Some file systems, such as Btrfs, have no limit on files and report none.
func (d *Dir) Writable() error {
	if err := store.Open(d.path).Writable(); err != nil {
		return err
	}
	dir, on, err := disk(d.path, syscall.Statfs)
	if err == nil && (on.Files > 0 && on.Ffree < mostFiles || on.Blocks > 0 && on.Bfree < mostFiles) {
		return fmt.Errorf("%s: no room for %d files (%d inodes and %d blocks are free): %w", dir, mostFiles, on.Ffree, on.Bfree, syscall.ENOSPC)
	}
	return err
}

// disk returns the nearest existing ancestor of a directory, and its file system.
func disk(dir string, statfs func(string, *syscall.Statfs_t) error) (_ string, on syscall.Statfs_t, err error) {
	err = statfs(dir, &on)
	for errors.Is(atomicfile.AsNotExist(err), fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = statfs(dir, &on)
	}
	return dir, on, err
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
		if pause < shortPause { // a timer would wake a second thread, which costs more than the pause
			_ = syscall.Nanosleep(&syscall.Timespec{Nsec: int64(min(pause, left))}, nil)
		} else {
			select {
			case <-ctx.Done():
			case <-time.After(min(pause, left)):
			}
		}
		if ctx.Err() != nil {
			return &BusyError{Path: path, Waited: time.Since(began), Cause: context.Cause(ctx)}
		}
	}
}

// holders returns the processes that hold the lock of a file, from /proc/PID/fdinfo. It opens no file of
// another process.
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
