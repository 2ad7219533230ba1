package journal_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/safefile/safefiletest"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

// swept runs a sweep, which must remove exactly these paths.
func swept(t *testing.T, j *journal.Journal, want ...string) {
	t.Helper()
	var got []string
	must(t, j.Sweep(func(path string) { got = append(got, path) }))
	slices.Sort(got)
	difftest.Same(t, "swept", got, want)
}

func TestSweepRemovesStateWithoutOwner(t *testing.T) {
	j, dir := open(t)
	swept(t, j) // the state directory does not exist yet
	record(t, j, everything(key1, "p"))
	put(t, journal.Open(dir, "an older boot"), key("old", "net1"), "old") // DEL and GC remove this entry, not Sweep
	must(t, j.Hold(claimOf("p", has("pci-pf", journal.Shared)...)))
	kept := files(t, dir)
	record(t, j, &journal.Entry{Key: key2, Pod: "p", File: "x", CDI: journal.CDI{File: "y"}, SocketDir: "/d", Leases: has("pci-pf", journal.Shared)})
	must(t, os.Remove(filepath.Join(dir, "attachments/net-a@decade@net1")))
	lost := claimOf("p", has("pci-lost", journal.Exclusive)...)
	lost.UID = "8e3a"
	must(t, j.Hold(lost))
	must(t, os.Remove(filepath.Join(dir, "claims/8e3a=net1")))
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
	swept(t, j, want...)
	expectFiles(t, dir, kept...)
	swept(t, j)
}

func TestSweepKeepsForeignFilesAndFilesOfLiveWriters(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "f")
	temp := filepath.Join(dir, "attachments/.net-a@decade@net1.devinfo")
	for _, path := range []string{temp, dir + "/attachments/README", dir + "/leases/file/README", dir + "/attachments/.swp"} {
		must(t, os.WriteFile(path, nil, 0o600))
	}
	writer := safefiletest.Lock(t, temp)
	before := files(t, dir)
	swept(t, j)
	expectFiles(t, dir, before...)
	writer.Close() // the writer has died
	swept(t, j, "attachments/.net-a@decade@net1.devinfo")
}

func TestSweepReportsUnreadableClaim(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		j, dir := open(t)
		must(t, j.Hold(claimOf("p")))
		record, err := j.Claims()
		must(t, err)
		path := filepath.Join(dir, "claims", record[0])
		must(t, syscall.Mount("/proc/self/mem", path, "", syscall.MS_BIND, "")) // reading address 0 fails
		defer func() { must(t, syscall.Unmount(path, 0)) }()
		difftest.Is(t, j.Sweep(func(path string) { t.Errorf("swept %s", path) }), syscall.EIO)
	})
}

// With a lock for each live claim, every sweep would delay ADDs.
func TestSweepTakesNoLockForLiveClaims(t *testing.T) {
	j, _ := open(t)
	must(t, j.Hold(claimOf("p")))
	must(t, j.Alone(func() error { return j.Sweep(func(path string) { t.Errorf("swept %s", path) }) }))
}

// The test counts how often a file is opened.
func TestSweepReadsNoEntries(t *testing.T) {
	j, dir := open(t)
	for n := range 60 {
		record(t, j, &journal.Entry{Key: key(fmt.Sprint("c", n), "net1"), File: fmt.Sprint("f", n), Leases: has("pci-pf", journal.Shared)})
		if n%3 == 0 {
			must(t, os.Remove(filepath.Join(dir, fmt.Sprintf("attachments/n@c%d@net1", n))))
		}
	}
	opened := watch(t, dir+"/attachments")
	swept := 0
	must(t, j.Sweep(func(string) { swept++ }))
	difftest.Equal(t, swept, 40)
	if got := opened(); got > 3 {
		t.Errorf("%d files were opened", got)
	}
}

// watch counts how often a directory or a file in it is opened, using inotify(7).
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
