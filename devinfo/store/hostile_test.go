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
		if err := os.MkdirAll(d.Path(""), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(victim, d.Path(".net1.devinfo")); err != nil {
			t.Fatal(err)
		}
		if err := act(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		data, err := os.ReadFile(victim)
		stat, statErr := os.Stat(victim)
		if err != nil || statErr != nil || string(data) != "v" || stat.Mode().Perm() != 0o644 {
			t.Errorf("%s: the file that the link was of holds %q, %v, %v", what, data, err, statErr)
		}
		if err := os.RemoveAll(d.Path("")); err != nil {
			t.Fatal(err)
		}
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
	if err := os.Chown(d.Path(temp), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	theirs, err := os.Open(d.Path(temp))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if err := syscall.Flock(int(theirs.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := d.Write("net1", []byte("new")); err != nil { // it does not wait for them
		t.Fatal(err)
	}
	stat, err := os.Stat(d.Path("net1"))
	if err != nil {
		t.Fatal(err)
	}
	if owner := stat.Sys().(*syscall.Stat_t).Uid; owner != 0 {
		t.Errorf("the file belongs to user %d", owner)
	}
}
