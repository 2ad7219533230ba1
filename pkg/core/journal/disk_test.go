package journal_test

import (
	"errors"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/safefile/safefiletest"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

// roomFor calls do with an increasing number of free inodes until it succeeds, and returns that number. After
// each failure the directory must be unchanged.
func roomFor(t *testing.T, disk safefiletest.Disk, do func() error) (room int) {
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
			t.Errorf("%d free inodes: got %v", room, err)
		}
		expectFiles(t, disk.Dir, before...)
	}
}

// Record and Hold must clean up after a failure at any of their steps.
func TestFailedRecordOnFullDiskLeavesNothing(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := safefiletest.Mount(t, 100)
		j := journal.Open(disk.Dir, boot)
		var e *journal.Entry
		record := func(former *journal.Entry) func() error {
			return func() error {
				e = everything(key1, "p")
				ready := j.Writable()
				err := j.Record(e, former)
				if err != nil && ready == nil {
					t.Errorf("Writable reports no error, but Record fails: %v", err)
				}
				if err != nil && e.Locked() != nil {
					t.Error("the failed entry is locked")
				}
				return err
			}
		}
		if room := roomFor(t, disk, record(nil)); room < 10 { // it creates an entry, five links and their directories
			t.Errorf("%d free inodes were enough", room)
		}
		e.Unlock()
		must(t, j.Forget(e))
		c := claimOf("p", has("pci-vf", journal.Exclusive)[0], has("pci-pf", journal.Shared)[0])
		if room := roomFor(t, disk, func() error { return j.Hold(c) }); room < 5 { // it creates a record, two links and their directories
			t.Errorf("a claim: %d free inodes were enough", room)
		}
		must(t, release(j, c.Record()))
		begun := &journal.Entry{Key: key1, Pod: "p", File: "f"}
		must(t, j.Record(begun, nil))
		if room := roomFor(t, disk, record(begun)); room < 8 {
			t.Errorf("replacing an entry: %d free inodes were enough", room)
		}
		e.Unlock()
	})
}

func TestForgetWorksOnFullDisk(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := safefiletest.Mount(t, 100)
		j := journal.Open(disk.Dir, boot)
		e := record(t, j, everything(key1, "p"))
		c := claimOf("p", has("pci-pf", journal.Shared)...)
		must(t, j.Hold(c))
		kept := record(t, j, &journal.Entry{Key: key2})
		empty := disk.Fill(0)
		difftest.Is(t, j.Writable(), syscall.ENOSPC)
		must(t, j.Forget(e), j.Forget(e), release(j, c.Record()))
		empty()
		expectFiles(t, disk.Dir, "attachments/net-a@decade@net1")
		must(t, j.Writable(), j.Forget(kept))
	})
}

// The kubelet may send a DEL for an attachment that ADD has never recorded, or that an earlier DEL has
// removed.
func TestForgetOfMissingEntryWorksOnReadOnlyDisk(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := safefiletest.Mount(t, 100)
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
			difftest.Is(t, j.Record(e, nil), syscall.EROFS)
			difftest.Is(t, j.Writable(), syscall.EROFS)
			expectFiles(t, disk.Dir, before...)
			disk.ReadOnly(false)
		}
	})
}
