package install_test

import (
	"os"
	"path/filepath"
	"testing"

	"devinfo-cni.io/pkg/install"
)

func TestAProgramIsKeptAsItIs(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "program")
	keep := func(when string) {
		t.Helper()
		if _, err := install.Program(from, to); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if stat, err := os.Lstat(to); err != nil || stat.Mode() != 0o755 || read(t, to) != read(t, from) {
			t.Errorf("%s: %v, %v", when, stat, err)
		}
	}
	write(t, from, "one", 0o755)
	keep("none")
	before, err := os.Stat(to)
	must(t, err)
	keep("the same")
	if after, err := os.Stat(to); err != nil || !os.SameFile(before, after) {
		t.Errorf("what was right was written again: %v", err)
	}
	write(t, from, "two", 0o755)
	keep("another version")
	write(t, to, "broken", 0o755)
	keep("one that was altered")
	must(t, os.Chmod(to, 0o777))
	keep("one that others may write to")
	must(t, os.Remove(to))
	keep("one that was removed")
	other := filepath.Join(dir, "other")
	write(t, other, "somebody's", 0o755)
	_, err = install.Program(from, other)
	expect(t, err, "is another program: move it away")
}
