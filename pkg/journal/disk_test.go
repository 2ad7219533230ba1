package journal_test

import (
	"errors"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link/linktest"
	"devinfo-cni.io/pkg/private/privatetest"
)

// Whichever step it is for which there is no room.
func TestAPutWithoutRoomLeavesNothing(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := privatetest.Mount(t, 100)
		j := journal.Open(disk.Dir, boot)
		room := 0
		for ; ; room++ {
			empty := disk.Fill(room)
			undo, err := j.Put(everything(key1), nil)
			empty()
			if err == nil {
				must(t, undo())
				break
			}
			if !errors.Is(err, syscall.ENOSPC) || undo != nil {
				t.Errorf("room for %d: got %v", room, err)
			}
			expectFiles(t, disk.Dir)
		}
		if room < 7 { // the entry, four links, two directories
			t.Errorf("room for %d will do", room)
		}
		expectFiles(t, disk.Dir)

		earlier := put(t, j, key1, "x")
		before := files(t, disk.Dir)
		for room := 1; room < 7; room++ {
			empty := disk.Fill(room)
			if _, err := j.Put(everything(key1), earlier); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("room for %d: got %v", room, err)
			}
			empty()
			expectFiles(t, disk.Dir, before...)
		}
	})
}

func TestForgetAndReleaseNeedNoRoom(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := privatetest.Mount(t, 100)
		j := journal.Open(disk.Dir, boot)
		e := putEntry(t, j, everything(key1))
		put(t, j, key2, "x")
		empty := disk.Fill(0)
		if err := j.Writable(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("writable: got %v", err)
		}
		must(t, j.Release(key1, e.Former[0]), j.Forget(e), j.Forget(e))
		empty()
		expectFiles(t, disk.Dir, "attachments/net-a@decade@net1", "files/x -> ../attachments/net-a@decade@net1")
		must(t, j.Writable())
	})
}

// DEL of what ADD has never recorded, or of what is gone.
func TestOnAReadOnlyDiskThereIsNothingToForget(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := privatetest.Mount(t, 100)
		for _, dir := range []string{"/none", "/some", "/shared"} {
			j := journal.Open(disk.Dir+dir, boot)
			switch dir {
			case "/some":
				must(t, j.Forget(putEntry(t, j, everything(key1))))
			case "/shared":
				putEntry(t, j, everything(key2)) // of the same pod
			}
			disk.ReadOnly(true)
			before := files(t, disk.Dir)
			e := everything(key1)
			must(t, j.Forget(e), j.Release(key1, e.Names()), j.Sweep(func(path string) { t.Errorf("swept %s", path) }))
			for _, claimed := range []func(journal.Key) ([]string, error){j.Claims, j.SpecClaims, j.SocketClaims} {
				if list, err := claimed(key1); len(list) > 0 || err != nil {
					t.Errorf("claims: %q, %v", list, err)
				}
			}
			expectFiles(t, disk.Dir, before...)
			undo, err := j.Put(e, nil)
			if !errors.Is(err, syscall.EROFS) || undo != nil {
				t.Errorf("Put: got %v", err)
			}
			if err := j.Writable(); !errors.Is(err, syscall.EROFS) {
				t.Errorf("writable: got %v", err)
			}
			expectFiles(t, disk.Dir, before...)
			disk.ReadOnly(false)
		}
	})
}
