package journal_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/private/privatetest"
)

func swept(t *testing.T, j *journal.Journal) (paths []string) {
	t.Helper()
	must(t, j.Sweep(func(path string) { paths = append(paths, path) }))
	slices.Sort(paths)
	return paths
}

func TestSweepRemovesWhatNoEntryNames(t *testing.T) {
	j, dir := open(t)
	if got := swept(t, j); got != nil { // there is nothing at all
		t.Errorf("swept %q", got)
	}
	putEntry(t, j, everything(key1))
	putEntry(t, j, &journal.Entry{Key: key2, File: "x", CDI: journal.CDI{File: "y"}, SocketDir: "/d", Pod: "p"})
	put(t, journal.Open(dir, "an older boot"), key("old", "net1"), "old") // DEL and GC know it
	putSockets(t, j, key("lone", "net1"), "q", "/e")
	kept := files(t, dir)
	putSockets(t, j, key("gone", "net1"), "q", "/e")
	for _, k := range []string{"net-a@decade@net1", "n@gone@net1"} {
		remove(t, filepath.Join(dir, "attachments", k))
	}
	for _, temp := range []string{"attachments/.a.tmp", "files/.f.tmp", "cdi/.s.tmp"} {
		must(t, os.WriteFile(filepath.Join(dir, temp), nil, 0o600))
	}
	link(t, "../elsewhere", filepath.Join(dir, "files/z"))
	link(t, "loop", filepath.Join(dir, "cdi/loop"))
	must(t, os.Mkdir(filepath.Join(dir, "sockets/empty"), 0o700))
	want := []string{"attachments/.a.tmp", "cdi/.s.tmp", "cdi/loop", "cdi/y", "files/.f.tmp", "files/x", "files/z",
		"sockets/d/net-a@decade@net1", "sockets/e/n@gone@net1"}
	if got := swept(t, j); !reflect.DeepEqual(got, want) {
		t.Errorf("swept %q\nwant  %q", got, want)
	}
	kept = slices.DeleteFunc(kept, func(path string) bool {
		return slices.ContainsFunc([]string{"attachments/net-a@decade", "cdi/y", "files/x", "sockets/d/net-a@decade"}, func(gone string) bool {
			return len(path) >= len(gone) && path[:len(gone)] == gone
		})
	})
	expectFiles(t, dir, kept...)
	if got := swept(t, j); got != nil {
		t.Errorf("the second time: %q", got)
	}
}

func TestSweepLeavesTheFilesOfLivingWritersAndStrangersAlone(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "f")
	temp := filepath.Join(dir, "attachments/.net-a@decade@net1.tmp")
	for _, path := range []string{temp, dir + "/attachments/README", dir + "/files/README", dir + "/attachments/.swp"} {
		must(t, os.WriteFile(path, nil, 0o600))
	}
	must(t, os.Mkdir(filepath.Join(dir, "sockets"), 0o700), os.WriteFile(filepath.Join(dir, "sockets/README"), nil, 0o600))
	writer := privatetest.Lock(t, temp)
	before := files(t, dir)
	if got := swept(t, j); got != nil {
		t.Errorf("swept %q", got)
	}
	expectFiles(t, dir, before...)
	writer.Close() // it has died
	if got, want := swept(t, j), []string{"attachments/.net-a@decade@net1.tmp"}; !reflect.DeepEqual(got, want) {
		t.Errorf("swept %q, want %q", got, want)
	}
}

// Neither entries nor directories are read per attachment, but for its own socket
// directory: what is opened is counted.
func TestSweepIsLinear(t *testing.T) {
	const living, dead = 100, 60
	j, dir := open(t)
	for n := range living + dead {
		k := key(fmt.Sprint("c", n), "net1")
		putEntry(t, j, &journal.Entry{Key: k, File: k.ContainerID, CDI: journal.CDI{File: k.ContainerID}, SocketDir: "/" + k.ContainerID, Pod: k.ContainerID})
		if n >= living {
			remove(t, filepath.Join(dir, "attachments/n@"+k.ContainerID+"@net1"))
		}
	}
	opened := watch(t, dir+"/attachments", dir+"/files", dir+"/cdi", dir+"/sockets")
	if got := swept(t, j); len(got) != 3*dead {
		t.Errorf("swept %d", len(got))
	}
	got := opened()
	for n, most := range []int{3, dead + 3, dead + 3, living + dead + 3} {
		if got[n] == 0 || got[n] > most {
			t.Errorf("directory %d: %d times something was opened, want at most %d", n, got[n], most)
		}
	}
}

// watch counts how often something was opened in each directory, itself or what is in it:
// see inotify(7).
func watch(t *testing.T, dirs ...string) (opened func() []int) {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	must(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	index := map[uint32]int{}
	for n, dir := range dirs {
		wd, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_OPEN)
		must(t, err)
		index[uint32(wd)] = n
	}
	return func() []int {
		t.Helper()
		count := make([]int, len(dirs))
		buf := make([]byte, 1<<20)
		for {
			n, err := syscall.Read(fd, buf)
			if err == syscall.EAGAIN {
				return count
			}
			must(t, err)
			for event := buf[:n]; len(event) > 0; {
				if mask := binary.NativeEndian.Uint32(event[4:]); mask&syscall.IN_Q_OVERFLOW != 0 {
					t.Fatal("too many events to count")
				}
				count[index[binary.NativeEndian.Uint32(event)]]++
				event = event[syscall.SizeofInotifyEvent+binary.NativeEndian.Uint32(event[12:]):]
			}
		}
	}
}
