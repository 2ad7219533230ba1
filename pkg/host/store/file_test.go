package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"sync"
	"syscall"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/store/storetest"
	"devinfo-cni.io/test/difftest"
)

func TestNewDirectoriesAndFilesHaveTheirModesWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		for what, c := range map[string]struct {
			in        func(string) *store.Dir
			dir, file fs.FileMode
		}{"open": {store.Open, 0o755, 0o644}, "private": {store.Private, 0o700, 0o600}, "durable": {store.Durable, 0o700, 0o600}} {
			top := t.TempDir()
			d, made := c.in(top+"/a/written"), c.in(top+"/b/made")
			old := syscall.Umask(umask)
			err := errors.Join(d.Write("net1", nil), made.Make())
			syscall.Umask(old)
			difftest.Must(t, err)
			difftest.Holds(t, top+"/a", "written")
			for path, want := range map[string]fs.FileMode{
				"/a": 0o755, "/a/written": c.dir, "/a/written/net1": c.file, "/b": 0o755, "/b/made": c.dir,
			} {
				if got := mode(t, top+path); got != want {
					t.Errorf("%s, umask %03o: %s has mode %o, want %o", what, umask, path, got, want)
				}
			}
		}
	}
}

// Only Make changes the mode of an existing directory, and only if that is 000. The owner cannot look below such a one.
func TestMakeRepairsDirectoriesOfMode000(t *testing.T) {
	top := t.TempDir()
	d := store.Open(top + "/k8s/cni")
	difftest.Must(t, d.Make(), os.Chmod(top+"/k8s", 0o710), os.Chmod(d.Path(""), 0o700))
	modes := func(parent, dir fs.FileMode) {
		t.Helper()
		difftest.WithModes(t, func() { difftest.Must(t, errors.Join(d.Make(), d.Write("net1", []byte("x")))) })
		if p, c := mode(t, top+"/k8s"), mode(t, d.Path("")); p != parent || c != dir {
			t.Errorf("the modes are %o and %o, want %o and %o", p, c, parent, dir)
		}
		expect(t, d, "net1", "x")
	}
	modes(0o710, 0o700)
	difftest.Must(t, os.Chmod(d.Path(""), 0), os.Chmod(top+"/k8s", 0))
	modes(0o755, 0o755)
}

func TestReadersSeeOldOrNewFileDuringWrites(t *testing.T) {
	d := store.Open(t.TempDir())
	content := func(writer int) []byte { return bytes.Repeat([]byte{'a' + byte(writer)}, 1000+5000*writer) }
	difftest.Must(t, d.Write("net1", content(0)))
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
	difftest.Holds(t, d.Path(""), "net1")
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
	difftest.Holds(t, d.Path(""), "own0", "own1", "own2", "own3")
}

// The library's writers have no lock, so Sweep takes them for dead. They try again.
func TestSweepMakesNoWriterOfTheLibraryFail(t *testing.T) {
	d := store.Open(t.TempDir())
	info := &devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "0000:3b:00.2"}}
	stop := make(chan struct{})
	var sweeps sync.WaitGroup
	sweeps.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := d.Sweep(func(string) {}); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 50 {
		difftest.Must(t, devinfo.WriteFile(d.Path("net1"), info))
		if got, err := d.Info("net1"); err != nil || got.PCI.Address != info.PCI.Address {
			t.Errorf("got %v, %v", got, err)
		}
	}
	close(stop)
	sweeps.Wait()
	difftest.Write(t, d.Path(".4711.devinfo"), "half", 0o644) // of a killed writer
	difftest.Must(t, d.Sweep(func(string) {}))
	difftest.Holds(t, d.Path(""), "net1")
}

func TestWriteWaitsOnlyForWriterOfSameName(t *testing.T) {
	d := store.Open(t.TempDir())
	temp := lockTemporary(t, d, "net1")
	written := make(chan error, 1)
	go func() { written <- d.Write("net1", []byte("second")) }()
	difftest.Must(t, d.Write("net2", nil))
	awaitWaiter(t, temp)
	difftest.Must(t, os.WriteFile(temp.Name(), []byte("first"), 0o600), os.Rename(temp.Name(), d.Path("net1"))) // the last steps of Write
	expect(t, d, "net1", "first")
	temp.Close()
	difftest.Must(t, <-written)
	expect(t, d, "net1", "second")
	difftest.Holds(t, d.Path(""), "net1", "net2")
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
	difftest.Must(t, os.MkdirAll(d.Path(""), 0o755))
	for _, name := range []string{"net1", ".net1.devinfo", ".gone.devinfo", ".net1.tmp", "..devinfo", ".devinfo", ".multus"} {
		difftest.Write(t, d.Path(name), "x", 0o644)
	}
	difftest.Must(t, os.Symlink("net1", d.Path(".link.devinfo")))
	difftest.Must(t, os.MkdirAll(d.Path(".dir.devinfo"), 0o755))
	live := lockTemporary(t, d, "live")
	if got, want := swept(), []string{".gone.devinfo", ".net1.devinfo"}; !reflect.DeepEqual(got, want) {
		t.Errorf("swept %v, want %v", got, want)
	}
	difftest.Holds(t, d.Path(""), "..devinfo", ".devinfo", ".dir.devinfo", ".link.devinfo", ".live.devinfo", ".multus", ".net1.tmp", "net1")
	live.Close() // the kernel does the same when a writer dies
	if got, want := swept(), []string{".live.devinfo"}; !reflect.DeepEqual(got, want) {
		t.Errorf("swept %v, want %v", got, want)
	}
}

// lockTemporary creates and locks the temporary file, like a writer in another process.
func lockTemporary(t *testing.T, d *store.Dir, name string) *os.File {
	t.Helper()
	difftest.Write(t, d.Path("."+name+".devinfo"), "", 0o600)
	return storetest.Lock(t, d.Path("."+name+".devinfo"))
}

// awaitWaiter waits until a process waits for the lock of f, see proc_locks(5).
func awaitWaiter(t *testing.T, f *os.File) {
	t.Helper()
	stat, err := f.Stat()
	difftest.Must(t, err)
	waiter := regexp.MustCompile(fmt.Sprintf(`-> FLOCK .*:%d `, stat.Sys().(*syscall.Stat_t).Ino))
	difftest.Eventually(t, "a process waits for the lock", func() bool { return waiter.MatchString(difftest.Read(t, "/proc/locks")) })
}
