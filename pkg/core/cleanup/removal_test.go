package cleanup_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/test/difftest"
)

// The end of an attachment removes its own files and nothing else. What cannot be told or removed is an error, which keeps
// the entry for the next try.
func TestRemovalRemovesOwnFilesOnly(t *testing.T) {
	const file, spec = "pod1", "devinfo-cni.io-attachment_c0ffee.json"
	named := "net-" + strings.Repeat("d", 64) + "_net1"
	own, err := cdispec.Device{Kind: cdispec.DefaultKind, Name: "c0ffee", IfName: "net1", Info: &devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "0000:3b:00.2"}}}.Spec()
	difftest.Must(t, err)
	rename := func(n *node, e *journal.Entry) {
		difftest.Must(n.t, os.Rename(n.infos(file), n.infos(named)))
		e.File = named
	}
	for name, test := range map[string]struct {
		prepare func(n *node, e *journal.Entry) // after ADD; leases lists those of e
		entry   func(n *node, e *journal.Entry) // before ADD
		left    string
		log     string
		err     string
	}{
		"both":        {},
		"none":        {prepare: func(n *node, _ *journal.Entry) { n.remove(n.infos(file), n.specs(spec)) }},
		"only a spec": {entry: func(n *node, e *journal.Entry) { n.remove(n.infos(file)); e.File = "" }},
		"only a file": {entry: func(n *node, e *journal.Entry) { n.remove(n.specs(spec)); e.CDI = journal.CDI{} }},
		"a directory": {prepare: func(n *node, _ *journal.Entry) {
			n.remove(n.infos(file))
			difftest.Must(n.t, os.Mkdir(n.infos(file), 0o755))
		}, left: "infos/pod1", log: "device-info file not removed"},
		"a spec of another program": {prepare: func(n *node, _ *journal.Entry) { difftest.Write(n.t, n.specs(spec), "{}", 0o644) }, left: "cdi/" + spec, log: "devinfo did not write it"},
		"a spec that is blank":      {prepare: func(n *node, _ *journal.Entry) { difftest.Write(n.t, n.specs(spec), "\n", 0o644) }},
		"a directory of specs that no call can reach": {entry: func(n *node, e *journal.Entry) { e.CDI.Dir += strings.Repeat("/x", 3000) },
			left: "cdi/" + spec, err: "file name too long"},
		"a directory of files that no call can reach": {entry: func(n *node, e *journal.Entry) { e.Dir += strings.Repeat("/x", 3000) },
			left: "infos/pod1", err: "file name too long"},
		"a lost lease of the file":                     {prepare: func(n *node, _ *journal.Entry) { n.remove(n.lease("file", file)) }},
		"a file that is named after another container": {entry: rename},
		"a file that is named after another container, of an earlier boot": {entry: rename,
			prepare: func(n *node, _ *journal.Entry) { n.Journal = journal.Open(n.Node.StateDir, "next") }},
		"a lost lease of a file that is named after another container": {entry: rename,
			prepare: func(n *node, _ *journal.Entry) { n.remove(n.lease("file", named)) }, left: "infos/" + named, log: "is named after another container"},
		"a file that another attachment has now": {prepare: func(n *node, e *journal.Entry) { n.remove(n.lease("file", file)); n.take(journal.Entry{File: file}) },
			left: "infos/pod1", log: "belongs to attachment net/decade/net1"},
		"a spec that another attachment has now": {prepare: func(n *node, e *journal.Entry) { n.remove(n.lease("spec", spec)); n.take(journal.Entry{CDI: e.CDI}) },
			left: "cdi/" + spec, log: "belongs to attachment net/decade/net1"},
		"a lease of the file that is none": {prepare: func(n *node, _ *journal.Entry) {
			n.remove(n.lease("file", file))
			difftest.Write(n.t, n.lease("file", file)+"/x", "", 0o600)
		}, left: "infos/pod1", err: "not a lease"},
		"a lease of the spec that is none": {prepare: func(n *node, _ *journal.Entry) {
			n.remove(n.lease("spec", spec))
			difftest.Write(n.t, n.lease("spec", spec)+"/x", "", 0o600)
		}, left: "cdi/" + spec, err: "not a lease"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 0)
			n.Listen = func() { t.Error("signals are received, although there are no delegates") }
			e := &journal.Entry{
				Key: journal.Key{Network: "net", ContainerID: "c0ffee", IfName: "net1"}, Dir: n.Node.DeviceInfoDir, File: file,
				CDI: journal.CDI{Dir: n.Node.CDIDir, File: spec, Device: "x"},
			}
			difftest.Write(t, n.infos(file), "{}", 0o644)
			difftest.Write(t, n.specs(spec), string(cdispec.Encode(own)), 0o644)
			if test.entry != nil {
				test.entry(n, e)
			}
			difftest.Must(t, n.Journal.Put(e, nil))
			if test.prepare != nil {
				test.prepare(n, e)
			}
			err := n.Removal(e).Run()
			again, unread := n.Journal.Get(e.Key)
			difftest.Must(t, unread)
			difftest.Same(t, fmt.Sprint("an error, and the entry is left: ", err), []bool{err != nil, again != nil}, []bool{test.err != "", test.err != ""})
			difftest.Contains(t, fmt.Sprint(err), test.err)
			var left []string
			for _, dir := range []string{"infos", "cdi"} {
				for _, name := range difftest.Names(t, filepath.Join(n.dir, dir)) {
					left = append(left, dir+"/"+name)
				}
			}
			difftest.Same(t, "left", strings.Join(left, " "), test.left)
			n.said(test.log)
		})
	}
}

func (n *node) infos(name string) string { return filepath.Join(n.Node.DeviceInfoDir, name) }
func (n *node) specs(name string) string { return filepath.Join(n.Node.CDIDir, name) }
func (n *node) lease(kind, id string) string {
	return filepath.Join(n.Node.StateDir, "leases", kind, id)
}

func (n *node) remove(paths ...string) {
	for _, path := range paths {
		difftest.Must(n.t, os.RemoveAll(path))
	}
}

// take gives what the entry names to another attachment.
func (n *node) take(e journal.Entry) {
	e.Key = journal.Key{Network: "net", ContainerID: "decade", IfName: "net1"}
	difftest.Must(n.t, n.Journal.Put(&e, nil))
	e.Unlock()
}

// Of a sweep, what becomes of an attachment in each state, without and with delegates that the sweep may run.
func TestSweepEndsStaleAttachmentsThatItCan(t *testing.T) {
	const live, stale = "/run/netns/live", "/run/netns/stale"
	for name, test := range map[string]struct {
		netns     string
		delegates bool
		text      string // replaces the record
		ends, may bool   // in any sweep, and in one that may run delegates
	}{
		"live":                             {netns: live},
		"stale":                            {netns: stale, ends: true, may: true},
		"live, with delegates":             {netns: live, delegates: true},
		"stale, with delegates":            {netns: stale, delegates: true, may: true},
		"stale, but the caller ends":       {netns: stale},
		"of a namespace that is not known": {netns: "/run/netns/unknown"},
		"damaged":                          {netns: stale, text: "{"},
		"of a newer build":                 {netns: stale, text: `{"format": 99}`},
	} {
		for _, delegates := range []bool{false, true} {
			n := newNode(t, 0)
			n.Journal.NetnsGone = func(path string) (bool, error) {
				if path == live || path == stale {
					return path == stale, nil
				}
				return false, os.ErrPermission
			}
			e := &journal.Entry{Key: journal.Key{Network: "net", ContainerID: "c0ffee", IfName: "net1"}, Netns: test.netns, Time: time.Now()}
			if test.delegates {
				e.Delegates = []json.RawMessage{[]byte(`{"cniVersion": "1.0.0", "name": "net", "type": "delegate"}`)}
			}
			difftest.Must(t, n.Journal.Put(e, nil))
			e.Unlock()
			difftest.Write(t, n.infos(".old.devinfo"), "", 0o600) // of a killed writer
			if test.text != "" {
				difftest.Write(t, e.Key.Path(n.Node.StateDir), test.text, 0o600)
			}
			rests := 0
			ctx, cancel := context.WithCancel(t.Context())
			got, err := n.CollectStale(ctx, delegates, func(context.Context) {
				if rests++; strings.Contains(name, "ends") {
					cancel()
				}
			})
			cancel()
			difftest.Must(t, err)
			ends := test.ends || test.may && delegates
			left, err := n.Journal.All()
			difftest.Must(t, err)
			difftest.Same(t, name+": entries left, attachments collected, left to the runtime, leftovers, and rests", []int{len(left), got.Collected, got.Left, got.Swept, rests},
				[]int{count(!ends), count(ends), count(test.may && !ends), 1, 1})
			difftest.Same(t, name+": the delegate's DEL has run", n.ran(), ends && test.delegates)
			log := n.log.String()
			unknown := strings.Contains(name, "not known")
			difftest.Same(t, name+": "+log, []int{strings.Count(log, "cannot tell"), strings.Count(log, "leftover"), strings.Count(log, "\n")}, []int{count(unknown), 1, 1 + count(unknown)})
		}
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// What cannot be read is an error of each call, and not empty: a loop of links takes the place of each directory.
func TestUnreadableDirectoryIsNotEmpty(t *testing.T) {
	key := journal.Key{Network: "net", ContainerID: "c0ffee", IfName: "net1"}
	sweep := func(n *node) error { return of(n.CollectStale(n.t.Context(), true, func(context.Context) {})) }
	for name, test := range map[string]struct {
		path string
		do   func(n *node) error
	}{
		"sweep of entries": {"state/attachments", sweep},
		"sweep of leases":  {"state/leases", sweep},
		"sweep of files":   {"infos", sweep},
		"sweep of specs":   {"cdi", sweep},
		"owner of a file":  {"state/leases/file", func(n *node) error { return of(n.Foreign(key, journal.OfFile, "f")) }},
		"damaged entry":    {"state/leases", func(n *node) error { return of(n.LockAnyway(key)) }},
		"entry":            {"state/attachments", func(n *node) error { return of(n.LockAnyway(key)) }},
		"entry to collect": {"state/attachments", func(n *node) error { return of(n.Collect(key, nil, nil)) }},
		"delegate of an ADD": {"", func(n *node) error {
			return n.Removal(&journal.Entry{Key: key, Delegates: []json.RawMessage{[]byte("5")}}).Run()
		}},
		"journal of others": {"", func(n *node) error { return errors.Join(os.Chmod(n.Node.StateDir, 0o777), sweep(n)) }},
	} {
		n := newNode(t, 0)
		n.take(journal.Entry{File: "f"})
		difftest.Write(t, key.Path(n.Node.StateDir), "{", 0o600)
		if test.path != "" {
			n.remove(filepath.Join(n.dir, test.path))
			difftest.Must(t, os.Symlink("loop", filepath.Join(n.dir, test.path)), os.Symlink(filepath.Base(test.path), filepath.Join(n.dir, filepath.Dir(test.path), "loop")))
		}
		for n.Wait = 0; n.Wait < 2; n.Wait++ { // the first try leaves no lock
			if err := test.do(n); err == nil || failure.Code(err) == failure.TryAgain {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func of[T any](_ T, err error) error { return err }

// Garbage collection ends what it has read. A record that is damaged is completed first.
func TestOnlyTheEntryThatWasReadIsCollected(t *testing.T) {
	for _, state := range []string{"sound", "damaged", "gone"} {
		for _, judged := range []bool{false, true} {
			damaged, gone := state == "damaged", state == "gone"
			n, completed := newNode(t, 1), 0
			e := n.add("c0ffee", "pod", 0, time.Now())
			read, err := n.Journal.Get(e.Key)
			difftest.Must(t, err)
			if damaged {
				difftest.Write(t, e.Key.Path(n.Node.StateDir), "{", 0o600)
			} else if gone {
				n.remove(e.Key.Path(n.Node.StateDir))
			}
			if !judged {
				read = nil
			}
			done, err := n.Collect(e.Key, read, func(*journal.Entry) { completed++ })
			difftest.Must(t, err)
			said := []bool{strings.Contains(n.log.String(), "added again"), strings.Contains(n.log.String(), "journal entry ignored")}
			difftest.Same(t, state+": it is said that it was added again, and is damaged", said, []bool{!done && !gone, damaged})
			difftest.Same(t, fmt.Sprintf("%s, read: %v: collected, and completed", state, judged), []int{count(done), completed}, []int{count(judged != damaged && !gone), count(damaged && !judged)})
		}
	}
}
