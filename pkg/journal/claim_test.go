package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"devinfo-cni.io/pkg/journal"
)

func expectOwner(t *testing.T, j *journal.Journal, file string, want journal.Key, wantOK bool) {
	t.Helper()
	if got, ok, err := j.Owner(file); got != want || ok != wantOK || err != nil {
		t.Errorf("owner of %s: got %v, %v, %v, want %v, %v", file, got, ok, err, want, wantOK)
	}
}

func expectSpecOwner(t *testing.T, j *journal.Journal, spec string, want journal.Key, wantOK bool) {
	t.Helper()
	if got, ok, err := j.SpecOwner(spec); got != want || ok != wantOK || err != nil {
		t.Errorf("owner of %s: got %v, %v, %v, want %v, %v", spec, got, ok, err, want, wantOK)
	}
}

func expectHolds(t *testing.T, j *journal.Journal, k journal.Key, file string, want bool) {
	t.Helper()
	if got, err := j.Holds(k, file); got != want || err != nil {
		t.Errorf("%s holds %s: got %v, %v, want %v", k, file, got, err, want)
	}
}

func TestAFileHasOneOwner(t *testing.T) {
	j, dir := open(t)
	expectOwner(t, j, "f", journal.Key{}, false)
	put(t, j, key1, "f")
	before := files(t, dir)
	err := refuse(t, j, &journal.Entry{Key: key2, File: "f"})
	var owned *journal.OwnedError
	if !errors.As(err, &owned) || !reflect.DeepEqual(*owned, journal.OwnedError{What: "device-info file", File: "f", Owner: key1}) {
		t.Errorf("got %v", err)
	}
	if want := "device-info file f: belongs to attachment net-a/c0ffee/net1"; err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	expectFiles(t, dir, before...)
	expectHolds(t, j, key1, "f", true)
	expectHolds(t, j, key2, "f", false)
	must(t, j.Forget(&journal.Entry{Key: key2, File: "f"})) // as DEL after the refused ADD
	expectOwner(t, j, "f", key1, true)
}

func TestASpecHasOneOwnerToo(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "s") // a file of the same name is another thing
	putEntry(t, j, &journal.Entry{Key: key2, CDI: journal.CDI{Dir: "/run/cdi", File: "s", Device: "a/b=c"}})
	expectOwner(t, j, "s", key1, true)
	expectSpecOwner(t, j, "s", key2, true)
	if claimed, err := j.SpecClaims(key2); err != nil || !reflect.DeepEqual(claimed, []string{"s"}) {
		t.Errorf("claims: %q, %v", claimed, err)
	}
	before := files(t, dir)
	err := refuse(t, j, &journal.Entry{Key: key1, File: "s", CDI: journal.CDI{File: "s"}})
	var owned *journal.OwnedError
	if !errors.As(err, &owned) || !reflect.DeepEqual(*owned, journal.OwnedError{What: "CDI spec", File: "s", Owner: key2}) {
		t.Errorf("got %v", err)
	}
	expectFiles(t, dir, before...)
	must(t, j.Forget(former(t, j, key2)))
	expectSpecOwner(t, j, "s", journal.Key{}, false)
}

func TestThePutOfTheOwnerIsRepeatable(t *testing.T) {
	j, dir := open(t)
	for range 3 {
		put(t, j, key1, "f")
	}
	expectFiles(t, dir, "attachments/net-a@c0ffee@net1", "files/f -> ../attachments/net-a@c0ffee@net1")
}

// So that the former file can be removed before anybody else may have the name.
func TestFormerNamesStayClaimedUntilTheyAreReleased(t *testing.T) {
	j, dir := open(t)
	first := putEntry(t, j, &journal.Entry{Key: key1, File: "f", CDI: journal.CDI{File: "r"}, SocketDir: "/d", Pod: "p"})
	second := putEntry(t, j, &journal.Entry{Key: key1, File: "g", CDI: journal.CDI{File: "s"}, Former: []journal.Names{first.Names()}})
	expectOwner(t, j, "f", key1, true)
	expectOwner(t, j, "g", key1, true)
	expectSpecOwner(t, j, "r", key1, true)
	if got := second.All(); !reflect.DeepEqual(got, []journal.Names{second.Names(), first.Names()}) {
		t.Errorf("all names: %+v", got)
	}
	must(t, j.Release(key1, first.Names()), j.Release(key1, first.Names()), j.Release(key2, second.Names()))
	putEntry(t, j, &journal.Entry{Key: key1, File: "g", CDI: journal.CDI{File: "s"}})
	expectFiles(t, dir, "attachments/net-a@c0ffee@net1", "cdi/s -> ../attachments/net-a@c0ffee@net1", "files/g -> ../attachments/net-a@c0ffee@net1")
	put(t, j, key2, "f")
	expectOwner(t, j, "f", key2, true)
	must(t, j.Forget(second)) // with the names of long ago: another's by now
	expectFiles(t, dir, "attachments/net-a@decade@net1", "files/f -> ../attachments/net-a@decade@net1")
}

func TestAClaimWithoutAnEntryIsTakenOver(t *testing.T) {
	j, dir := open(t)
	e := put(t, j, key1, "f")
	remove(t, filepath.Join(dir, "attachments/net-a@c0ffee@net1")) // killed in between
	expectOwner(t, j, "f", journal.Key{}, false)
	expectHolds(t, j, key1, "f", true)
	put(t, j, key2, "f")
	expectOwner(t, j, "f", key2, true)
	must(t, j.Forget(e))
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

func TestAClaimOfAnotherBootIsTakenOverAndToForgetItLeavesTheNewOneAlone(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "f")
	next := journal.Open(dir, "another boot")
	expectOwner(t, next, "f", journal.Key{}, false)
	put(t, next, key2, "f")
	expectOwner(t, next, "f", key2, true)
	e, err := next.Get(key1)
	if err != nil || e.BootID != boot {
		t.Errorf("the old entry: got %v, %v", e, err)
	}
	must(t, next.Forget(e))
	expectOwner(t, next, "f", key2, true)
	expectFiles(t, dir, "attachments/net-a@decade@net1", "files/f -> ../attachments/net-a@decade@net1")
	must(t, j.Forget(former(t, j, key2))) // and in the old boot, so to speak
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
		must(t, j.Forget(former(t, j, key2)))
	}
}

func TestWhatIsNoLinkIsNobodysToTake(t *testing.T) {
	j, dir := open(t)
	put(t, j, key2, "g")
	must(t, os.WriteFile(filepath.Join(dir, "files/f"), nil, 0o600))
	if _, _, err := j.Owner("f"); err == nil {
		t.Error("it is no claim, but has no error")
	}
	refuse(t, j, &journal.Entry{Key: key1, File: "f"})
	expectFiles(t, dir, "attachments/net-a@decade@net1", "files/f", "files/g -> ../attachments/net-a@decade@net1")
}

func remove(t *testing.T, path string) {
	t.Helper()
	must(t, os.Remove(path))
}

func link(t *testing.T, target, path string) {
	t.Helper()
	must(t, os.Symlink(target, path))
}
