package journal_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link/linktest"
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
	record(t, j, everything(key1, "p"))
	put(t, journal.Open(dir, "an older boot"), key("old", "net1"), "old") // DEL and GC know it
	must(t, j.Hold(claimOf("p", has("pci-pf", journal.Shared)...)))
	kept := files(t, dir)
	record(t, j, &journal.Entry{Key: key2, Pod: "p", File: "x", CDI: journal.CDI{File: "y"}, SocketDir: "/d", Leases: has("pci-pf", journal.Shared)})
	remove(t, filepath.Join(dir, "attachments/net-a@decade@net1"))
	lost := claimOf("p", has("pci-lost", journal.Exclusive)...)
	lost.UID = "8e3a"
	must(t, j.Hold(lost))
	remove(t, filepath.Join(dir, "claims/8e3a=net1"))
	must(t, os.WriteFile(filepath.Join(dir, "attachments/.a.devinfo"), nil, 0o600))
	link(t, "../elsewhere", filepath.Join(dir, "leases/file/z/n@none@net1"))
	link(t, "loop", filepath.Join(dir, "leases/spec/loop/loop"))
	must(t, os.Mkdir(filepath.Join(dir, "leases/socket/empty"), 0o700), os.MkdirAll(j.Cache(key2)+"/results", 0o700))
	older := claimOf("q")
	older.UID = "9f4b"
	must(t, journal.Open(dir, "an older boot").Hold(older))
	must(t, os.WriteFile(filepath.Join(dir, "claims/torn"), []byte("{"), 0o600))
	want := []string{"attachments/.a.devinfo", "claims/9f4b=net1", "claims/torn",
		"leases/device/pci-lost/8e3a=net1", "leases/device/pci-pf/~net-a@decade@net1",
		"leases/file/x/net-a@decade@net1", "leases/file/z/n@none@net1", "leases/socket/%2Fd/net-a@decade@net1",
		"leases/spec/loop/loop", "leases/spec/y/net-a@decade@net1", "libcni/net-a@decade@net1"}
	if got := swept(t, j); !reflect.DeepEqual(got, want) {
		t.Errorf("swept %q\nwant  %q", got, want)
	}
	expectFiles(t, dir, kept...)
	if got := swept(t, j); got != nil {
		t.Errorf("the second time: %q", got)
	}
}

func TestSweepLeavesTheFilesOfLivingWritersAndStrangersAlone(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "f")
	temp := filepath.Join(dir, "attachments/.net-a@decade@net1.devinfo")
	for _, path := range []string{temp, dir + "/attachments/README", dir + "/leases/file/README", dir + "/attachments/.swp"} {
		must(t, os.WriteFile(path, nil, 0o600))
	}
	writer := privatetest.Lock(t, temp)
	before := files(t, dir)
	if got := swept(t, j); got != nil {
		t.Errorf("swept %q", got)
	}
	expectFiles(t, dir, before...)
	writer.Close() // it has died
	if got, want := swept(t, j), []string{"attachments/.net-a@decade@net1.devinfo"}; !reflect.DeepEqual(got, want) {
		t.Errorf("swept %q, want %q", got, want)
	}
}

func TestSweepSaysWhichClaimItCannotRead(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		j, dir := open(t)
		must(t, j.Hold(claimOf("p")))
		record, err := j.Claims()
		must(t, err)
		path := filepath.Join(dir, "claims", record[0])
		must(t, syscall.Mount("/proc/self/mem", path, "", syscall.MS_BIND, "")) // nothing is at address 0
		defer func() { must(t, syscall.Unmount(path, 0)) }()
		if err := j.Sweep(func(path string) { t.Errorf("swept %s", path) }); !errors.Is(err, syscall.EIO) {
			t.Errorf("got %v", err)
		}
	})
}

// Else each live claim would hold up ADDs at each sweep.
func TestSweepTakesNoLockForWhatStays(t *testing.T) {
	j, _ := open(t)
	must(t, j.Hold(claimOf("p")))
	must(t, j.Alone(func() error { return j.Sweep(func(path string) { t.Errorf("swept %s", path) }) }))
}

// No entry is opened: what is opened is counted.
func TestSweepReadsNoEntries(t *testing.T) {
	j, dir := open(t)
	for n := range 60 {
		record(t, j, &journal.Entry{Key: key(fmt.Sprint("c", n), "net1"), File: fmt.Sprint("f", n), Leases: has("pci-pf", journal.Shared)})
		if n%3 == 0 {
			remove(t, filepath.Join(dir, fmt.Sprintf("attachments/n@c%d@net1", n)))
		}
	}
	opened := watch(t, dir+"/attachments")
	if got := swept(t, j); len(got) != 40 {
		t.Errorf("swept %d", len(got))
	}
	if got := opened(); got > 3 {
		t.Errorf("%d times something was opened", got)
	}
}

// watch counts how often something was opened in a directory, itself or what is in it: see
// inotify(7).
func watch(t *testing.T, dir string) (opened func() int) {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	must(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	_, err = syscall.InotifyAddWatch(fd, dir, syscall.IN_OPEN)
	must(t, err)
	return func() (count int) {
		t.Helper()
		buf := make([]byte, 1<<20)
		n, err := syscall.Read(fd, buf)
		must(t, err)
		for event := buf[:n]; len(event) > 0; count++ {
			event = event[syscall.SizeofInotifyEvent+binary.NativeEndian.Uint32(event[12:]):]
		}
		return count
	}
}
