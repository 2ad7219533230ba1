package network

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
)

func TestNamespaceStaysOpenUntilItIsClosed(t *testing.T) {
	dir, refusal := t.TempDir(), errors.New("no namespace")
	path := filepath.Join(dir, "netns")
	difftest.Write(t, path, "", 0o600)
	var n Namespaces
	n.Check = func(string) error { return refusal }
	difftest.Is(t, n.Hold("s1", filepath.Join(dir, "none")), fs.ErrNotExist)
	difftest.Is(t, n.Hold("s1", path), refusal)
	difftest.Same(t, "path of what is not held", n.Path("", "s1"), "")

	n.Check = func(path string) error { _, err := os.Stat(path); return err }
	difftest.Must(t, n.Hold("s1", path), n.Hold("s2", path), n.Hold("s1", "held already"))
	difftest.Must(t, os.Remove(path))
	for _, sandbox := range []string{"s1", "s2"} {
		target, err := os.Readlink(n.Path("", sandbox))
		difftest.Must(t, err)
		difftest.Same(t, "what is open for "+sandbox, target, path+" (deleted)")
	}
	self, err := os.Readlink("/proc/self")
	difftest.Must(t, err, os.MkdirAll(filepath.Join(dir, "proc"), 0o700))
	difftest.Same(t, "path below a root without processes", n.Path(dir, "s1"), "")
	difftest.Must(t, os.Symlink(self, filepath.Join(dir, "proc/self")))
	difftest.Same(t, "path below a root of other processes", n.Path(dir, "s1"), "")

	first := n.Path("", "s1")
	n.Close("s1")
	difftest.Same(t, "path after Close", n.Path("", "s1"), "")
	if target, err := os.Readlink(first); err == nil && target == path+" (deleted)" {
		t.Error("the file is still open")
	}
	n.CloseAll()
	difftest.Same(t, "path after CloseAll", n.Path("", "s2"), "")
}

// A plugin of a killed process may have started a daemon, which holds the lock for ever. A lock that cannot be opened may be
// held too.
func TestWaitForOrphansIsLimited(t *testing.T) {
	for _, there := range []string{"nothing", "a lock", "a free lock", "a link"} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			r, at := Runner{CacheDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))}, &state.Attachment{IfName: "net1"}
			held := there == "a lock"
			if there == "a link" {
				difftest.Must(t, os.MkdirAll(r.dir("u1", at), 0o700), os.Symlink("x", filepath.Join(r.dir("u1", at), lockFile)))
			} else if there != "nothing" {
				lock, err := store.Private(r.dir("u1", at)).WriteLocked(lockFile, nil)
				difftest.Must(t, err)
				if held {
					defer store.Unlock(lock)
				} else {
					store.Unlock(lock)
				}
			}
			for range 2 { // it holds no lock itself
				began := time.Now()
				err := r.WaitForOrphans("u1", at)
				difftest.Same(t, there+": it fails", err != nil, there == "a link")
				difftest.Same(t, there+": it waits until the limit", time.Since(began) >= PluginLimit, held)
				difftest.Same(t, there+": it warns of a daemon", strings.Contains(log.String(), "assuming that it is a daemon"), held)
			}
		})
	}
}
