package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/store/storetest"
	"devinfo-cni.io/test/difftest"
)

// roomFor calls do with an increasing number of free inodes until it succeeds, and returns that number. After
// each failure the directory must be unchanged.
func roomFor(t *testing.T, disk storetest.Disk, do func() error) (room int) {
	t.Helper()
	before := files(t, disk.Dir)
	for ; ; room++ {
		empty := disk.Fill(room)
		err := do()
		empty()
		if err == nil {
			return room
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%d free inodes: got %v", room, err)
		}
		expectFiles(t, disk.Dir, before...)
	}
}

// Put and Hold must clean up after a failure at any of their steps.
func TestFailedRecordOnFullDiskLeavesNothing(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := storetest.Mount(t, 100)
		j := journal.Open(disk.Dir, boot)
		for free, want := range map[int]error{19: syscall.ENOSPC, 20: nil} { // for 16 files and four missing directories
			empty := disk.Fill(free)
			difftest.Is(t, j.Writable(), want)
			empty()
		}
		var e *journal.Entry
		record := func(former *journal.Entry) func() error {
			return func() error {
				e = everything(key1, "p")
				ready := j.Writable()
				err := j.Put(e, former)
				if err != nil {
					difftest.Says(t, ready)
					difftest.Same(t, "the failed entry is locked", e.Locked() != nil, false)
				}
				return err
			}
		}
		room := []int{roomFor(t, disk, record(nil))} // it creates an entry, five links and their directories
		e.Unlock()
		must(t, j.Forget(e))
		c := claimOf("p", has("pci-vf", journal.Exclusive)[0], has("pci-pf", journal.Shared)[0])
		room = append(room, roomFor(t, disk, func() error { return j.Hold(c) })) // it creates a record, two links and their directories
		must(t, release(j, c.FileName()))
		begun := &journal.Entry{Key: key1, Pod: "p", File: "f"}
		must(t, j.Put(begun, nil))
		room = append(room, roomFor(t, disk, record(begun)))
		e.Unlock()
		if room[0] < 10 || room[1] < 5 || room[2] < 8 {
			t.Errorf("%d free inodes were enough for an entry, a claim, and to replace an entry", room)
		}
	})
}

func TestForgetWorksOnFullDisk(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := storetest.Mount(t, 100)
		j := journal.Open(disk.Dir, boot)
		e := record(t, j, everything(key1, "p"))
		c := claimOf("p", has("pci-pf", journal.Shared)...)
		must(t, j.Hold(c))
		kept := record(t, j, &journal.Entry{Key: key2})
		empty := disk.Fill(0)
		difftest.Is(t, j.Writable(), syscall.ENOSPC)
		must(t, j.Forget(e), j.Forget(e), release(j, c.FileName()))
		empty()
		expectFiles(t, disk.Dir, "attachments/net-a@decade@net1")
		must(t, j.Writable(), j.Forget(kept))
	})
}

// The kubelet may send a DEL for an attachment that ADD has never recorded, or that an earlier DEL has
// removed.
func TestForgetOfMissingEntryWorksOnReadOnlyDisk(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := storetest.Mount(t, 100)
		for _, dir := range []string{"/none", "/some", "/shared"} {
			j := journal.Open(disk.Dir+dir, boot)
			switch dir {
			case "/some":
				must(t, j.Forget(record(t, j, everything(key1, "p"))))
			case "/shared":
				record(t, j, &journal.Entry{Key: key2, Pod: "p", Leases: everything(key2, "p").Leases}) // an attachment of the same pod
			}
			disk.ReadOnly(true)
			before := files(t, disk.Dir)
			e := everything(key1, "p")
			must(t, j.Forget(e), release(j, "7d2f"), j.Sweep(func(path string) { t.Errorf("swept %s", path) }), j.FillFromLeases(&journal.Entry{Key: key1}))
			expectFiles(t, disk.Dir, before...)
			difftest.Is(t, j.Put(e, nil), syscall.EROFS)
			difftest.Is(t, j.Writable(), syscall.EROFS)
			expectFiles(t, disk.Dir, before...)
			disk.ReadOnly(false)
		}
		j := journal.Open(disk.Dir+"/some", boot) // a directory that is empty would be left over
		e := everything(key1, "p")
		must(t, os.Mkdir(filepath.Join(disk.Dir, "some/leases/file", e.File), 0o700))
		disk.ReadOnly(true)
		difftest.Is(t, j.Forget(e), syscall.EROFS)
		disk.ReadOnly(false)
	})
}

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
	must(t, os.WriteFile(filepath.Join(dir, "claims/torn"), []byte(`{"bootID":"older",`), 0o600))
	ofEarlierBoot(t, filepath.Join(dir, "claims/torn"))
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
	writer := storetest.Lock(t, temp)
	before := files(t, dir)
	swept(t, j)
	expectFiles(t, dir, before...)
	writer.Close() // the writer has died
	swept(t, j, "attachments/.net-a@decade@net1.devinfo")
}

// A sweep reads the records of claims, but not those of attachments, of which a node may have many.
func TestSweepReadsOnlyClaims(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		j, dir := open(t)
		put(t, j, key1, "f")
		must(t, j.Hold(claimOf("p")))
		for record, want := range map[string]error{"attachments/net-a@c0ffee@net1": nil, "claims/7d2f=net1": syscall.EIO} {
			path := filepath.Join(dir, record)
			must(t, syscall.Mount("/proc/self/mem", path, "", syscall.MS_BIND, "")) // reading address 0 fails
			difftest.Is(t, j.Sweep(func(path string) { t.Errorf("swept %s", path) }), want)
			must(t, syscall.Unmount(path, 0))
		}
	})
}

// With a lock for each live claim, every sweep would delay ADDs.
func TestSweepTakesNoLockForLiveClaims(t *testing.T) {
	j, _ := open(t)
	must(t, j.Hold(claimOf("p", has("pci-vf", journal.Exclusive)...)))
	must(t, j.Alone(func() error { return j.Sweep(func(path string) { t.Errorf("swept %s", path) }) }))
}
