package journal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/test/difftest"
)

// lost is an attachment that a killed ADD has left without an entry.
var lost = journal.Key{Network: "net-a", ContainerID: "lost", IfName: "net1"}

// full returns a directory with a journal in "state" that has something of each kind: an attachment, a claim, and leftovers.
func full(t *testing.T) (top string) {
	t.Helper()
	top = t.TempDir()
	dir := top + "/state"
	j := journal.Open(dir, boot)
	e := everything(key1, "p")
	e.Delegates = []json.RawMessage{[]byte(`{}`)}
	difftest.Write(t, top+"/infos/a", "ours", 0o600)
	difftest.Write(t, top+"/sriov/0000:01:10.0", "/run/netns/s", 0o600)
	c := &journal.Claim{UID: "u1", Pods: []string{"q"}, Leases: append(has("pci-vf2", journal.Exclusive), has("pci-pf", journal.Shared)...), Files: map[string]string{top + "/infos/a": "ours"}}
	old := &journal.Claim{UID: "u9", Leases: has("pci-old", journal.Exclusive)}
	must(t, j.Put(e, nil), j.Hold(c), journal.Open(dir, "an older boot").Hold(old), os.MkdirAll(j.Cache(key1)+"/results", 0o700), os.MkdirAll(j.Cache(lost)+"/results", 0o700))
	e.Unlock()
	link(t, "x", dir+"/leases/file/z/net-a@lost@net1")
	must(t, os.WriteFile(dir+"/attachments/.net-a@lost@net1.devinfo", nil, 0o600))
	return top
}

// outcome is what a method has answered: JSON, or its error.
func outcome(got any, err error) string {
	if e, is := got.(*journal.Entry); is {
		e.Unlock()
	}
	if err != nil {
		return "error: " + err.Error()
	}
	text, _ := json.Marshal(got)
	return string(text)
}

var uptime = regexp.MustCompile(`"(uptime":\d+|time":"[^"]*)`)

// content returns the files below a directory with their content.
func content(t *testing.T, top string) []string {
	t.Helper()
	list := files(t, top)
	for n, name := range list {
		if data, err := os.ReadFile(filepath.Join(top, name)); err == nil && !strings.Contains(name, " -> ") {
			list[n] += ": " + strings.ReplaceAll(uptime.ReplaceAllString(string(data), ""), top, "TOP")
		}
	}
	return list
}

// doors are the modes that close each file or directory to a method: 0300 to listing, 0500 to changes, 0600 to looking at
// what is in it, 0200 to reading.
func doors(t *testing.T, top string, change bool) (list []door) {
	t.Helper()
	must(t, filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(top, path)
		switch {
		case e.Type().IsRegular():
			list = append(list, door{name, 0o200})
		case e.IsDir() && name != ".":
			list = append(list, door{name, 0o300}, door{name, 0o600})
			if change {
				list = append(list, door{name, 0o500})
			}
		}
		return err
	}))
	return list
}

type door struct {
	name string
	mode fs.FileMode
}

// closed calls f with the door closed, which also holds for root.
func (d door) closed(t *testing.T, top string, f func()) {
	t.Helper()
	path := filepath.Join(top, d.name)
	stat, err := os.Lstat(path)
	must(t, err, os.Chmod(path, d.mode))
	difftest.WithModes(t, f)
	if err := os.Chmod(path, stat.Mode().Perm()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// reached opens the journal of full as a caller that has seen that it is root's.
func reached(t *testing.T, top string) *journal.Journal {
	t.Helper()
	j := journal.Open(top+"/state", boot)
	j.SRIOVLocks = top + "/sriov"
	must(t, j.Own())
	return j
}

// Whatever cannot be read is not empty, free or nobody's: a method says so, or answers as if it could be read.
func TestMethodThatReadsSaysWhatItCannotRead(t *testing.T) {
	top := full(t)
	asks := &journal.Entry{Key: key2, Pod: "x", File: "g", Leases: append(has("pci-0000:01:10.0", journal.Shared), has("pci-new", journal.Exclusive)...)}
	methods := readers(t, nil)
	for _, changes := range strings.Fields("Put Hold ReleaseIf Sweep Unrecorded") {
		delete(methods, changes)
	}
	maps.Copy(methods, map[string]func(j *journal.Journal) (any, error){
		"Free": func(j *journal.Journal) (any, error) { return nil, j.Free(asks) },
		"held": func(j *journal.Journal) (any, error) {
			return nil, j.Free(&journal.Entry{Key: key2, Pod: "x", Leases: has("pci-pf", journal.Exclusive)})
		},
		"Holders":        func(j *journal.Journal) (any, error) { return j.Holders(journal.OfDevice, "pci-pf") },
		"FillFromLeases": func(j *journal.Journal) (any, error) { e := &journal.Entry{Key: key1}; return e, j.FillFromLeases(e) },
		"Changed":        func(j *journal.Journal) (any, error) { return j.Changed() },
		"Own":            func(j *journal.Journal) (any, error) { return nil, j.Own() },
		"EnsureDir":      func(j *journal.Journal) (any, error) { return nil, j.EnsureDir() },
		"Writable":       func(j *journal.Journal) (any, error) { return nil, j.Writable(journal.SpecLeases, journal.Caches) },
		"Devices":        func(j *journal.Journal) (any, error) { return j.Devices(everything(key1, "p")), nil },
		"Holds":          func(j *journal.Journal) (any, error) { return j.Holds(key1, journal.OfFile, "f"), nil },
	})
	said := 0
	for name, read := range methods {
		want, before := outcome(read(reached(t, top))), content(t, top)
		for _, d := range doors(t, top, name == "Writable") {
			j := reached(t, top)
			d.closed(t, top, func() {
				got, err := read(j)
				text := outcome(got, err)
				if errors.Is(err, fs.ErrPermission) && strings.Contains(err.Error(), top) {
					said++
				} else if text != want {
					t.Errorf("%s with mode %o of %s: %s, want %s or the error", name, d.mode, d.name, text, want)
				}
			})
		}
		difftest.Same(t, "changed by "+name, content(t, top), before)
	}
	if said != 80 {
		t.Errorf("%d errors", said)
	}
}

// A method that fails says why, makes and loses nothing that is not its own, and can be called again. What a failed record was
// to replace stays, with all its leases.
func TestMethodThatChangesSaysWhatItCannotChange(t *testing.T) {
	record := func(e journal.Entry) func(*journal.Journal) error {
		return func(j *journal.Journal) error {
			e := e
			former, err := j.Lock(t.Context(), e.Key, 0)
			if err == nil {
				err = j.Put(&e, former)
			}
			e.Unlock()
			former.Unlock()
			return err
		}
	}
	for name, test := range map[string]struct {
		change func(*journal.Journal) error
		keeps  bool   // everything if it fails
		uses   string // the directories, as a regular expression
	}{
		"record":        {record(journal.Entry{Key: key2, Pod: "p", File: "g", CDI: journal.CDI{File: "s2"}, SocketDir: "/d", Leases: has("pci-pf", journal.Shared)}), true, "attachments|leases"},
		"record again":  {record(journal.Entry{Key: key1, Pod: "p", File: "g", Leases: has("pci-vf", journal.Exclusive)}), true, "attachments|leases"},
		"take a device": {record(journal.Entry{Key: key2, Pod: "x", Leases: append(has("pci-0000:01:10.0", journal.Exclusive), has("pci-old", journal.Shared)...)}), false, "sriov|leases/device/pci-old|claims"},
		"hold": {func(j *journal.Journal) error {
			return j.Hold(&journal.Claim{UID: "u2", Leases: has("pci-new", journal.Exclusive)})
		}, true, "claims|leases"},
		"hold again": {func(j *journal.Journal) error {
			return j.Hold(&journal.Claim{UID: "u1", Leases: append(has("pci-pf", journal.Shared), has("pci-old", journal.Exclusive)...)})
		}, false, "infos|claims|leases/device"},
		"forget": {func(j *journal.Journal) error {
			e, err := j.Lock(t.Context(), key1, 0)
			defer e.Unlock()
			if err != nil || e == nil {
				return err
			}
			return j.Forget(e)
		}, false, "attachments|libcni|leases"},
		"release":    {func(j *journal.Journal) error { return release(j, "u1") }, false, "infos|claims|leases/device"},
		"unrecorded": {func(j *journal.Journal) error { return j.Unrecorded(lost, func() error { return nil }) }, false, "attachments|leases"},
		"sweep":      {sweep, false, "state"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := full(t)
			before, uses := content(t, whole), regexp.MustCompile("^state$|"+test.uses)
			list := slices.DeleteFunc(doors(t, whole, true), func(d door) bool { return !uses.MatchString(d.name) })
			must(t, test.change(reached(t, whole)))
			after := content(t, whole)
			must(t, sweep(reached(t, whole)))
			swept := content(t, whole)
			said, top := 0, ""
			for _, d := range list {
				if top == "" {
					top = full(t)
				}
				j := reached(t, top)
				var err error
				d.closed(t, top, func() { err = test.change(j) })
				now, at := content(t, top), fmt.Sprintf("mode %o of %s", d.mode, d.name)
				if err == nil {
					difftest.Same(t, at, now, after)
					top = ""
					continue
				}
				if said++; !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), top) {
					t.Errorf("%s: %v", at, err)
				}
				if slices.Equal(now, before) {
					continue
				}
				for _, f := range now {
					if !slices.Contains(before, f) && !slices.Contains(after, f) {
						t.Errorf("%s: made %s", at, f)
					}
				}
				for _, f := range before {
					if !slices.Contains(now, f) && (test.keeps || slices.Contains(after, f)) {
						t.Errorf("%s: lost %s", at, f)
					}
				}
				must(t, test.change(reached(t, top)), sweep(reached(t, top)))
				difftest.Same(t, at+", when called again", content(t, top), swept)
				top = ""
			}
			if said < 5 {
				t.Errorf("%d errors", said)
			}
		})
	}
}

func sweep(j *journal.Journal) error { return j.Sweep(func(string) {}) }
