package journal_test

import (
	"errors"
	"reflect"
	"testing"

	"devinfo-cni.io/pkg/journal"
)

func putSpec(t *testing.T, j *journal.Journal, k journal.Key, file, spec string) {
	t.Helper()
	e := &journal.Entry{Key: k, File: file, CDI: journal.CDI{Dir: "/run/cdi", File: spec, Device: "a/b=c"}}
	if err := j.Put(e); err != nil {
		t.Fatal(err)
	}
}

func expectSpecOwner(t *testing.T, j *journal.Journal, spec string, want journal.Key, wantOK bool) {
	t.Helper()
	if got, ok, err := j.SpecOwner(spec); got != want || ok != wantOK || err != nil {
		t.Errorf("owner of %s: got %v, %v, %v, want %v, %v", spec, got, ok, err, want, wantOK)
	}
}

func TestACDISpecHasOneOwner(t *testing.T) {
	j, dir := open(t)
	putSpec(t, j, key1, "f", "s")
	expectSpecOwner(t, j, "s", key1, true)
	before := files(t, dir)
	err := j.Put(&journal.Entry{Key: key2, File: "g", CDI: journal.CDI{File: "s"}})
	var owned *journal.OwnedError
	if !errors.As(err, &owned) || !reflect.DeepEqual(*owned, journal.OwnedError{What: "CDI spec", File: "s", Owner: key1}) {
		t.Errorf("got %v", err)
	}
	expectFiles(t, dir, before...) // the claim on g is undone
	if e, err := j.Get(key1); err != nil || e.CDI != (journal.CDI{Dir: "/run/cdi", File: "s", Device: "a/b=c"}) {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestASpecAndADeviceInfoFileMayHaveOneName(t *testing.T) {
	j, _ := open(t)
	putSpec(t, j, key1, "f", "s")
	putSpec(t, j, key2, "s", "f")
	expectSpecOwner(t, j, "s", key1, true)
	expectOwner(t, j, "s", key2, true)
}

func TestAPutWithAnotherSpecGivesTheFirstOneUp(t *testing.T) {
	j, dir := open(t)
	putSpec(t, j, key1, "f", "s")
	putSpec(t, j, key1, "f", "r")
	expectSpecOwner(t, j, "s", journal.Key{}, false)
	put(t, j, key1, "f")
	expectSpecOwner(t, j, "r", journal.Key{}, false)
	expectFiles(t, dir, "attachments/net-a@c0ffee@net1", "files/f -> ../attachments/net-a@c0ffee@net1")
}

func TestDropGivesTheSpecUp(t *testing.T) {
	j, dir := open(t)
	putSpec(t, j, key1, "", "s")
	if claimed, err := j.SpecClaims(key1); err != nil || !reflect.DeepEqual(claimed, []string{"s"}) {
		t.Errorf("claims: %q, %v", claimed, err)
	}
	if err := j.Drop(key1); err != nil {
		t.Error(err)
	}
	expectFiles(t, dir)
	expectSpecOwner(t, j, "s", journal.Key{}, false)
}
