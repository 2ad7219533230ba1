package store_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/devinfo/store"
)

func TestWriteAndMakeCreateAndRepairDirectoriesWhateverTheUmask(t *testing.T) {
	for what, act := range map[string]func(*store.Dir) error{
		"Write": func(d *store.Dir) error { return d.Write("net1", nil) }, "Make": (*store.Dir).Make,
	} {
		for _, umask := range []int{0, 0o022, 0o077} {
			top := t.TempDir()
			d := store.Open(top + "/k8s/devinfo/cni")
			for range 2 { // first the directories are missing, then they have mode 000
				old := syscall.Umask(umask)
				err := act(d)
				syscall.Umask(old)
				must(t, err)
				if what == "Write" && mode(t, d.Path("net1")) != 0o644 {
					t.Errorf("umask %03o: the file has mode %o", umask, mode(t, d.Path("net1")))
				}
				for dir := d.Path(""); dir != top; dir = filepath.Dir(dir) {
					if got := mode(t, dir); got != 0o755 {
						t.Errorf("%s, umask %03o: %s has mode %o", what, umask, dir, got)
					}
					must(t, os.Chmod(dir, 0))
				}
			}
			must(t, act(d)) // makes the directories removable at the end of the test
		}
	}
}

func TestWriteKeepsDirectoryModesExcept000(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	must(t, store.Open(dir).Write("net1", nil))
	if got := mode(t, dir); got != 0o700 {
		t.Errorf("got %o", got)
	}
}

func TestWriteBelowAFileFailsAndNamesIt(t *testing.T) {
	top := t.TempDir()
	put(t, top+"/file", "")
	d := store.Open(top + "/file/cni")
	for method, err := range map[string]error{"Write": d.Write("net1", nil), "Writable": d.Writable()} {
		if want := top + "/file: not a directory"; err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", method, err, want)
		}
	}
}

func TestReadersSeeOldOrNewFileDuringWrites(t *testing.T) {
	d := store.Open(t.TempDir())
	content := func(writer int) []byte { return bytes.Repeat([]byte{'a' + byte(writer)}, 1000+5000*writer) }
	must(t, d.Write("net1", content(0)))
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for w := range 8 {
		writers.Go(func() {
			for range 100 {
				if err := d.Write("net1", content(w)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		readers.Go(func() {
			for {
				data, err := d.Read("net1")
				if err != nil {
					t.Error(err)
				} else if len(data) == 0 || !bytes.Equal(data, content(int(data[0]-'a'))) {
					t.Errorf("half a file: %d bytes", len(data))
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	expectEntries(t, d.Path(""), "net1")
}

func TestConcurrentWriteRemoveAndSweepSucceed(t *testing.T) {
	d := store.Open(filepath.Join(t.TempDir(), "a/b"))
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for range 200 {
				for _, err := range []error{
					d.Write("net1", []byte("x")), d.Remove("net1"),
					d.Write(fmt.Sprint("own", w), []byte("x")), d.Sweep(func(string) {}),
				} {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	expectEntries(t, d.Path(""), "own0", "own1", "own2", "own3")
}

func TestWriteWaitsOnlyForWriterOfSameName(t *testing.T) {
	d := store.Open(t.TempDir())
	temp := lockTemporary(t, d, "net1")
	written := make(chan error, 1)
	go func() { written <- d.Write("net1", []byte("second")) }()
	must(t, d.Write("net2", nil))
	awaitWaiter(t, temp)
	_, err := temp.WriteString("first")
	must(t, err)
	must(t, os.Rename(temp.Name(), d.Path("net1"))) // the last step of Write
	expect(t, d, "net1", "first")
	temp.Close()
	must(t, <-written)
	expect(t, d, "net1", "second")
	expectEntries(t, d.Path(""), "net1", "net2")
}

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
