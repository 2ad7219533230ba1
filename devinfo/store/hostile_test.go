package store_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"devinfo-cni.io/devinfo/store"
)

// Who may make names in the directory may give the temporary file's to a file of others,
// where fs.protected_hardlinks is 0.
func TestAHardLinkAtTheTemporaryNameIsNotWrittenThrough(t *testing.T) {
	parent := t.TempDir()
	d := store.Open(filepath.Join(parent, "cni"))
	victim := filepath.Join(parent, "victim")
	for what, act := range map[string]func() error{
		"Write":  func() error { return d.Write("net1", []byte("new")) },
		"Remove": func() error { return d.Remove("net1") },
		"Sweep":  func() error { return d.Sweep(func(string) {}) },
	} {
		put(t, victim, "v")
		must(t, os.Chmod(victim, 0o600))
		must(t, os.MkdirAll(d.Path(""), 0o755))
		must(t, os.Link(victim, d.Path(".net1.devinfo")))
		if err := act(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		data, err := os.ReadFile(victim)
		stat, statErr := os.Stat(victim)
		if err != nil || statErr != nil || string(data) != "v" || stat.Mode().Perm() != 0o600 {
			t.Errorf("%s: the file that the link was of holds %q, %v, %v", what, data, err, statErr)
		}
		must(t, os.RemoveAll(d.Path("")))
	}
}

// One who owns the file at the temporary name may hold its lock for ever, and change the
// content afterwards.
func TestATemporaryFileOfAnotherUserIsNotTakenOver(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a file of another user")
	}
	d := store.Open(t.TempDir())
	const temp = ".net1.devinfo"
	put(t, d.Path(temp), "theirs")
	must(t, os.Chown(d.Path(temp), 65534, 65534))
	theirs, err := os.Open(d.Path(temp))
	must(t, err)
	defer theirs.Close()
	must(t, syscall.Flock(int(theirs.Fd()), syscall.LOCK_EX))
	if err := d.Write("net1", []byte("new")); err != nil { // it does not wait for them
		t.Fatal(err)
	}
	stat, err := os.Stat(d.Path("net1"))
	must(t, err)
	if owner := stat.Sys().(*syscall.Stat_t).Uid; owner != 0 {
		t.Errorf("the file belongs to user %d", owner)
	}
}
