package journal_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link/linktest"
	"devinfo-cni.io/pkg/private/privatetest"
)

// everything is an entry that claims one thing of each kind, and two by former names.
func everything(k journal.Key) *journal.Entry {
	return &journal.Entry{
		Key: k, File: "f", CDI: journal.CDI{File: "s"}, SocketDir: "/d", Pod: "p",
		Former: []journal.Names{{File: "g", CDI: journal.CDI{File: "r"}, SocketDir: "/c"}},
	}
}

func TestUndoLeavesNothing(t *testing.T) {
	j, dir := open(t)
	undo, err := j.Put(everything(key1), nil)
	must(t, err)
	if got := files(t, dir); len(got) != 9 {
		t.Errorf("it made %q", got)
	}
	must(t, undo())
	expectFiles(t, dir)
}

// Byte for byte, also what no Put of this build would write: an older boot's entry is not
// stamped as one of this boot, and one that makes no sense still says that there was one.
func TestUndoPutsTheFormerEntryBack(t *testing.T) {
	for name, content := range map[string]string{
		"of this boot":  `{"format": 2, "network":"net-a","containerID":"c0ffee","ifName":"net1","bootID":"` + boot + `", "file":"f",  "new": 1}`,
		"of an older":   `{"format": 2, "network":"net-a","containerID":"c0ffee","ifName":"net1","bootID":"older", "file":"f"}`,
		"of format 1":   "{\"network\":\"net-a\",\"containerID\":\"c0ffee\",\"ifName\":\"net1\",\n\"bootID\":\"older\",\"file\":\"f\",\"result\": {\"a\":  \"<&>\"}}\n\n",
		"without sense": `{"network":"net-a","conta`,
		"torn to zeros": "\x00\x00\x00",
		"empty":         "",
	} {
		t.Run(name, func(t *testing.T) {
			j, dir := open(t)
			put(t, j, key1, "f")
			overwrite(t, dir, key1, content)
			before := files(t, dir)
			undo, err := j.Put(everything(key1), former(t, j, key1))
			must(t, err)
			if e, err := j.Get(key1); err != nil || e.BootID != boot || len(e.Former) != 1 {
				t.Errorf("after Put: got %v, %v", e, err)
			}
			must(t, undo())
			expectContent(t, dir, key1, content)
			expectFiles(t, dir, before...) // the claim that was there stays
			put(t, j, key2, "s")
			putEntry(t, j, &journal.Entry{Key: key2, File: "s", CDI: journal.CDI{File: "s"}})
			refuse(t, j, everything(key1))
			expectContent(t, dir, key1, content)
		})
	}
}

func expectContent(t *testing.T, dir string, k journal.Key, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, "attachments", strings.ReplaceAll(k.String(), "/", "@")))
	if err != nil || string(got) != want {
		t.Errorf("the entry of %s holds %q, %v, want %q", k, got, err, want)
	}
}

// As ADD does with delegates: begun, found, complete. The ways back are taken last first.
func TestUndoOfSeveralPutsGoesBackStepByStep(t *testing.T) {
	j, dir := open(t)
	var undo [3]func() error
	var states [3][]string
	var earlier *journal.Entry
	for n, file := range []string{"", "f", "f"} {
		e := &journal.Entry{Key: key1, File: file, Complete: n == 2}
		states[n] = files(t, dir)
		var err error
		undo[n], err = j.Put(e, earlier)
		must(t, err)
		earlier = e
	}
	for n := 2; n >= 0; n-- {
		must(t, undo[n]())
		expectFiles(t, dir, states[n]...)
		if e, err := j.Get(key1); err != nil || (e == nil) != (n == 0) || e != nil && e.Complete {
			t.Errorf("step %d: got %v, %v", n, e, err)
		}
	}
}

// The entry tells what there is left to do, so it stays until the claims are gone.
func TestAnUndoThatFailsKeepsTheEntryAndCanBeRepeated(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := privatetest.Mount(t, 100)
		j := journal.Open(disk.Dir, boot)
		undo, err := j.Put(everything(key1), nil)
		must(t, err)
		before := files(t, disk.Dir)
		disk.ReadOnly(true)
		if err := undo(); !errors.Is(err, syscall.EROFS) {
			t.Errorf("got %v", err)
		}
		expectFiles(t, disk.Dir, before...)
		disk.ReadOnly(false)
		must(t, undo())
		expectFiles(t, disk.Dir)
	})
}

func TestARefusedPutPutsBackWhatItHadClaimed(t *testing.T) {
	for _, theirs := range []*journal.Entry{
		{File: "f"}, {CDI: journal.CDI{File: "s"}}, {File: "g"}, {CDI: journal.CDI{File: "r"}},
		{SocketDir: "/d", Pod: "other"}, {SocketDir: "/c", Pod: "other"},
	} {
		j, dir := open(t)
		theirs.Key = key2
		putEntry(t, j, theirs)
		for _, file := range []string{"", "x"} { // without an earlier entry, and with one
			if file != "" {
				put(t, j, key1, file)
			}
			before, earlier := files(t, dir), former(t, j, key1)
			err := refuse(t, j, everything(key1))
			var owned *journal.OwnedError
			if !errors.As(err, &owned) || owned.Owner != key2 {
				t.Errorf("%+v: got %v", theirs, err)
			}
			expectFiles(t, dir, before...)
			if now := former(t, j, key1); !reflect.DeepEqual(now, earlier) {
				t.Errorf("got %+v, want %+v", now, earlier)
			}
		}
		must(t, j.Forget(theirs))
	}
}

func TestAnEntryThatCannotBeWrittenLeavesNoClaim(t *testing.T) {
	j, dir := open(t)
	put(t, j, key2, "")
	if _, err := j.Put(&journal.Entry{Key: key1, File: "f", Before: make([]byte, 4<<20)}, nil); err == nil {
		t.Error("too large: no error")
	}
	if _, err := j.Put(&journal.Entry{Key: key1, File: "f", Result: json.RawMessage("{")}, nil); err == nil {
		t.Error("not JSON: no error")
	}
	must(t, os.Mkdir(filepath.Join(dir, "attachments/net-a@c0ffee@net1"), 0o700))
	if _, err := j.Put(&journal.Entry{Key: key1, File: "f"}, nil); err == nil {
		t.Error("a directory in its place: no error")
	}
	expectFiles(t, dir, "attachments/net-a@c0ffee@net1/", "attachments/net-a@decade@net1")
}

// What is in the place of an entry gives way to one, but for a directory, and to Forget.
func TestWhatIsNoEntryGivesWay(t *testing.T) {
	for what, odd := range map[string]func(path string) error{
		"directory":  func(path string) error { return os.Mkdir(path, 0o700) },
		"named pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link":       func(path string) error { return os.Symlink("/etc/passwd", path) },
		"huge":       func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<30)) },
	} {
		j, dir := open(t)
		path := filepath.Join(dir, "attachments/net-a@c0ffee@net1")
		put(t, j, key1, "f")
		remove(t, path)
		must(t, odd(path))
		before := files(t, dir)
		if former(t, j, key1) != nil {
			t.Errorf("%s: it is an entry", what)
		}
		undo, err := j.Put(everything(key1), nil)
		switch {
		case what == "directory":
			if !errors.Is(err, syscall.EEXIST) || undo != nil {
				t.Errorf("%s: got %v", what, err)
			}
			expectFiles(t, dir, before...)
		case err != nil:
			t.Errorf("%s: %v", what, err)
		default:
			must(t, undo(), odd(path))
			expectFiles(t, dir, before...)
		}
		must(t, j.Forget(everything(key1)))
		expectFiles(t, dir)
	}
}
