package journal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"devinfo-cni.io/pkg/journal"
)

func expectOwner(t *testing.T, j *journal.Journal, file string, want journal.Key, wantOK bool) {
	t.Helper()
	if got, ok, err := j.Owner(file); got != want || ok != wantOK || err != nil {
		t.Errorf("owner of %s: got %v, %v, %v, want %v, %v", file, got, ok, err, want, wantOK)
	}
}

func TestAFileHasOneOwner(t *testing.T) {
	j, dir := open(t)
	expectOwner(t, j, "f", journal.Key{}, false)
	put(t, j, key1, "f")
	before := files(t, dir)
	err := j.Put(&journal.Entry{Key: key2, File: "f"})
	var owned *journal.OwnedError
	if !errors.As(err, &owned) || !reflect.DeepEqual(*owned, journal.OwnedError{What: "device-info file", File: "f", Owner: key1}) {
		t.Errorf("got %v", err)
	}
	if want := "device-info file f: belongs to attachment net-a/c0ffee/net1"; err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	expectFiles(t, dir, before...)
	expectOwner(t, j, "f", key1, true)
	if err := j.Drop(key2); err != nil { // as DEL after the refused ADD
		t.Error(err)
	}
	expectOwner(t, j, "f", key1, true)
}

func TestARefusedPutKeepsTheEarlierEntryAndItsFile(t *testing.T) {
	j, _ := open(t)
	put(t, j, key1, "f")
	put(t, j, key2, "g")
	if err := j.Put(&journal.Entry{Key: key2, File: "f"}); err == nil {
		t.Fatal("no error")
	}
	expectOwner(t, j, "g", key2, true)
	if e, err := j.Get(key2); err != nil || e.File != "g" {
		t.Errorf("got %v, %v", e, err)
	}
}

func TestThePutOfTheOwnerIsRepeatable(t *testing.T) {
	j, dir := open(t)
	for range 3 {
		put(t, j, key1, "f")
	}
	expectFiles(t, dir, "attachments/net-a@c0ffee@net1", "files/f -> ../attachments/net-a@c0ffee@net1")
}

func TestAPutWithAnotherFileGivesTheFirstOneUp(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "f")
	put(t, j, key1, "g")
	expectFiles(t, dir, "attachments/net-a@c0ffee@net1", "files/g -> ../attachments/net-a@c0ffee@net1")
	put(t, j, key2, "f")
	put(t, j, key1, "")
	expectOwner(t, j, "g", journal.Key{}, false)
	expectOwner(t, j, "f", key2, true)
}

func TestAClaimWithoutAnEntryIsTakenOver(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "f")
	remove(t, filepath.Join(dir, "attachments/net-a@c0ffee@net1")) // killed in between
	expectOwner(t, j, "f", journal.Key{}, false)
	put(t, j, key2, "f")
	expectOwner(t, j, "f", key2, true)
	if err := j.Drop(key1); err != nil {
		t.Error(err)
	}
	expectOwner(t, j, "f", key2, true)
}

func TestAClaimWhoseEntryNamesAnotherFileIsTakenOver(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "f")
	link(t, "../attachments/net-a@c0ffee@net1", filepath.Join(dir, "files/g")) // killed in between
	expectOwner(t, j, "g", journal.Key{}, false)
	put(t, j, key2, "g")
	expectOwner(t, j, "g", key2, true)
	expectOwner(t, j, "f", key1, true)
}

func TestAClaimOfAnotherBootIsTakenOverAndItsDropLeavesTheNewOneAlone(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "f")
	next := journal.Open(dir, "another boot")
	expectOwner(t, next, "f", journal.Key{}, false)
	put(t, next, key2, "f")
	expectOwner(t, next, "f", key2, true)
	if e, err := next.Get(key1); err != nil || e.BootID != boot {
		t.Errorf("the old entry: got %v, %v", e, err)
	}
	if err := next.Drop(key1); err != nil {
		t.Error(err)
	}
	expectOwner(t, next, "f", key2, true)
	expectFiles(t, dir, "attachments/net-a@decade@net1", "files/f -> ../attachments/net-a@decade@net1")
}

func TestDropOfAnEntryOfAnotherBootRemovesItsClaim(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "f")
	if err := journal.Open(dir, "another boot").Drop(key1); err != nil {
		t.Error(err)
	}
	expectFiles(t, dir)
}

func TestALinkToElsewhereIsNobodysClaim(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "g")
	for _, target := range []string{"/etc/passwd", "../../x", "../attachments/", "../attachments/../../net-a@c0ffee@net1"} {
		link(t, target, filepath.Join(dir, "files/f"))
		expectOwner(t, j, "f", journal.Key{}, false)
		put(t, j, key2, "f")
		expectOwner(t, j, "f", key2, true)
		if err := j.Drop(key2); err != nil {
			t.Error(err)
		}
	}
}

func TestAnEntryThatCannotBeWrittenLeavesNoClaim(t *testing.T) {
	j, dir := open(t)
	put(t, j, key2, "")
	entry := filepath.Join(dir, "attachments/net-a@c0ffee@net1")
	if err := j.Put(&journal.Entry{Key: key1, File: "f", Before: make([]byte, 4<<20)}); err == nil {
		t.Error("too large: no error")
	}
	if err := j.Put(&journal.Entry{Key: key1, File: "f", Result: json.RawMessage("{")}); err == nil {
		t.Error("not JSON: no error")
	}
	if err := os.MkdirAll(filepath.Join(entry, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := j.Put(&journal.Entry{Key: key1, File: "f"}); err == nil {
		t.Error("a directory in its place: no error")
	}
	expectFiles(t, dir, "attachments/net-a@c0ffee@net1", "attachments/net-a@decade@net1")
}

func TestLeftoverLockOfAKilledProcessIsNoObstacle(t *testing.T) {
	j, dir := open(t)
	put(t, j, key2, "g")
	for _, name := range []string{"files/.f.tmp", "attachments/.net-a@c0ffee@net1.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(t, j, key1, "f")
	if err := j.Drop(key2); err != nil {
		t.Fatal(err)
	}
	expectFiles(t, dir, "attachments/net-a@c0ffee@net1", "files/f -> ../attachments/net-a@c0ffee@net1")
}

// A stale claim, wanted by many at once: the hardest case.
func TestOfManyThatWantOneFileExactlyOneGetsIt(t *testing.T) {
	j, dir := open(t)
	for round := range 20 {
		file := fmt.Sprint("f", round)
		if round%2 == 1 {
			put(t, journal.Open(dir, "an older boot"), key1, file)
		}
		var won atomic.Int32
		var all sync.WaitGroup
		for n := range 16 {
			all.Go(func() {
				k := journal.Key{Network: "n", ContainerID: fmt.Sprint(round, "-", n), IfName: "net1"}
				err := j.Put(&journal.Entry{Key: k, File: file})
				var owned *journal.OwnedError
				switch {
				case err == nil:
					won.Add(1)
					expectOwner(t, j, file, k, true)
				case !errors.As(err, &owned):
					t.Error(err)
				default:
					if e, err := j.Get(k); e != nil || err != nil {
						t.Errorf("the loser has an entry: %v, %v", e, err)
					}
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("%s: %d owners", file, won.Load())
		}
	}
}

func TestParallelAttachmentsDoNotMeet(t *testing.T) {
	j, dir := open(t)
	var all sync.WaitGroup
	for n := range 32 {
		all.Go(func() {
			k := journal.Key{Network: "n", ContainerID: fmt.Sprint("c", n), IfName: "net1"}
			for range 5 {
				if err := j.Put(&journal.Entry{Key: k, File: k.ContainerID}); err != nil {
					t.Error(err)
				}
				expectOwner(t, j, k.ContainerID, k, true)
				if err := j.Drop(k); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	expectFiles(t, dir)
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}
