package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/devinfo/store"
)

func TestSweepRemovesOnlyFilesOfDeadWriters(t *testing.T) {
	d := store.Open(filepath.Join(t.TempDir(), "cni"))
	swept := func() (names []string) {
		t.Helper()
		if err := d.Sweep(func(name string) { names = append(names, name) }); err != nil {
			t.Error(err)
		}
		return names
	}
	if got := swept(); got != nil { // the directory does not exist yet
		t.Errorf("swept %v", got)
	}
	must(t, os.MkdirAll(d.Path(""), 0o755))
	for _, name := range []string{"net1", ".net1.devinfo", ".gone.devinfo", ".net1.tmp", "..devinfo", ".devinfo", ".multus"} {
		put(t, d.Path(name), "x")
	}
	must(t, os.Symlink("net1", d.Path(".link.devinfo")))
	must(t, os.MkdirAll(d.Path(".dir.devinfo"), 0o755))
	live := lockTemporary(t, d, "live")
	if got, want := swept(), []string{".gone.devinfo", ".net1.devinfo"}; !reflect.DeepEqual(got, want) {
		t.Errorf("swept %v, want %v", got, want)
	}
	expectEntries(t, d.Path(""), "..devinfo", ".devinfo", ".dir.devinfo", ".link.devinfo", ".live.devinfo", ".multus", ".net1.tmp", "net1")
	live.Close() // the kernel does the same when a writer dies
	if got, want := swept(), []string{".live.devinfo"}; !reflect.DeepEqual(got, want) {
		t.Errorf("swept %v, want %v", got, want)
	}
}

// lockTemporary creates and locks the temporary file, like a writer in another process.
func lockTemporary(t *testing.T, d *store.Dir, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(d.Path("."+name+".devinfo"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// awaitWaiter waits until a process waits for the lock of f, see proc_locks(5).
func awaitWaiter(t *testing.T, f *os.File) {
	t.Helper()
	stat, err := f.Stat()
	must(t, err)
	waiter := regexp.MustCompile(fmt.Sprintf(`-> FLOCK .*:%d `, stat.Sys().(*syscall.Stat_t).Ino))
	for deadline := time.Now().Add(2 * time.Minute); !waiter.MatchString(get(t, "/proc/locks")); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no process waits for the lock")
		}
	}
}
