package journal_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/journal"
)

func TestLockedBySRIOVReturnsLiveLocks(t *testing.T) {
	dir := fstest.MapFS{
		"0000:01:10.0": {Data: []byte("/var/run/netns/a\n")}, "0000:01:10.2": {Data: []byte("/var/run/netns/gone")},
		"notes": {Data: []byte("/var/run/netns/a")}, "0000:01:10.4": {Mode: fs.ModeDir},
	}
	gone := func(netns string) (bool, error) { return strings.HasSuffix(netns, "gone"), nil }
	got, err := journal.LockedBySRIOV(dir, gone)
	want := map[string]string{"0000:01:10.0": "sriov-cni has allocated it to network namespace /var/run/netns/a"}
	must(t, err)
	difftest.Equal(t, got, want)
	if got, err := journal.LockedBySRIOV(failing{dir, ".", fs.ErrNotExist}, gone); len(got) > 0 || err != nil {
		t.Errorf("without sriov-cni: %v, %v", got, err)
	}
	if got, err := journal.LockedBySRIOV(failing{dir, "0000:01:10.0", fs.ErrNotExist}, gone); len(got) > 0 || err != nil {
		t.Errorf("a lock that disappears: %v, %v", got, err)
	}
	if got, err := journal.LockedBySRIOV(failing{dir, "0000:01:10.0", syscall.EIO}, gone); !errors.Is(err, syscall.EIO) {
		t.Errorf("an unreadable lock is ignored: %v, %v", got, err)
	}
}

// failing is a directory with one path that cannot be opened.
type failing struct {
	fs.FS
	name string
	err  error
}

func (f failing) Open(name string) (fs.File, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
	}
	return f.FS.Open(name)
}
