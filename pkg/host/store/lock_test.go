package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/store/storetest"
	"devinfo-cni.io/test/difftest"
)

const patience = 5 * time.Minute

func lockFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "entry")
	difftest.Must(t, os.WriteFile(path, []byte("{}"), 0o400))
	return path
}

// locked takes and releases a lock.
func locked(ctx context.Context, path string, limit time.Duration) error {
	f, err := store.Lock(ctx, path, limit)
	store.Unlock(f)
	return err
}

func TestLockReturnsAtLimitOrEndOfContext(t *testing.T) {
	path := lockFile(t)
	storetest.Lock(t, path)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := locked(t.Context(), path, patience)
		var busy *store.BusyError
		if !errors.As(err, &busy) || busy.Waited != patience || busy.Path != path || time.Since(began) != patience {
			t.Errorf("after %v: %#v", time.Since(began), err)
		}
		if want := fmt.Sprintf("%s: still locked by process %d (", path, os.Getpid()); len(busy.Holders) != 1 || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		if err := locked(ctx, path, patience); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &busy) || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func replace(path string) error {
	return errors.Join(os.WriteFile(path+"2", nil, 0o600), os.Rename(path+"2", path))
}

func TestLockReturnsWhenLockIsFree(t *testing.T) {
	for name, end := range map[string]func(path string, lock *os.File) error{
		"free":     func(_ string, lock *os.File) error { return lock.Close() },
		"removed":  func(path string, _ *os.File) error { return os.Remove(path) },
		"replaced": func(path string, _ *os.File) error { return replace(path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := lockFile(t)
			lock := storetest.Lock(t, path)
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				time.AfterFunc(time.Minute, func() { difftest.Is(t, end(path, lock), nil) })
				difftest.Must(t, locked(t.Context(), path, patience))
				if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
					t.Errorf("after %v", took)
				}
			})
		})
	}
}

func TestLockNeedsExistingFile(t *testing.T) {
	if f, err := store.Lock(t.Context(), filepath.Join(t.TempDir(), "none"), 0); f != nil || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
	made := filepath.Join(t.TempDir(), "made")
	f, err := store.LockFile(t.Context(), made, 0)
	difftest.Must(t, err)
	difftest.As[*store.BusyError](t, locked(t.Context(), made, 0))
	store.Unlock(f)
	difftest.Equal(t, mode(t, made), fs.FileMode(0o600))
	loop := filepath.Join(t.TempDir(), "loop")
	difftest.Must(t, os.Symlink(loop, loop))
	difftest.Is(t, locked(t.Context(), loop, patience), store.ErrNotRegular)
	pipe := filepath.Join(t.TempDir(), "pipe")
	difftest.Must(t, syscall.Mkfifo(pipe, 0o600))
	difftest.Must(t, locked(t.Context(), pipe, 0)) // must not block
}

// The file must be locked from the moment it appears.
func TestWriteLockedLocksNewFile(t *testing.T) {
	d := store.Private(t.TempDir())
	f, err := d.WriteLocked("a", []byte("x"))
	difftest.Must(t, err)
	difftest.As[*store.BusyError](t, locked(t.Context(), d.Path("a"), 0))
	store.Unlock(f)
	difftest.Must(t, locked(t.Context(), d.Path("a"), 0))
	expect(t, d, "a", "x")
}

func TestLockedFileMayBeReplaced(t *testing.T) {
	path := lockFile(t)
	lock := func() error { return locked(t.Context(), path, patience) }
	done := make(chan error)
	for _, do := range []func() error{lock, lock, func() error { return replace(path) }} {
		go func() {
			var err error
			for range 500 {
				err = errors.Join(err, do())
			}
			done <- err
		}()
	}
	difftest.Must(t, <-done, <-done, <-done)
}

func TestDirectoryOnNFSIsNotLockable(t *testing.T) {
	dir := t.TempDir()
	difftest.Must(t, store.Lockable(dir+"/a/b"))
	difftest.Says(t, store.LockableOn(dir, 0x6969), dir+": is on NFS, which does not support these locks")
}
