package network

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

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
