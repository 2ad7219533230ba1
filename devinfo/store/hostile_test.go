package store_test

import (
	"os"
	"syscall"
	"testing"

	"devinfo-cni.io/devinfo/store"
)

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
