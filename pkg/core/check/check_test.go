package check_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// Each file of testdata shows one rule. A section in capital letters is a step:
//
//	HOST name      loads a captured host, without the entries listed in the body and everything below them
//	NETNS          replaces the pod's interfaces; null is a namespace that may not be entered
//	ENTRY          sets the journal entry; by default it is of this boot
//	FILE, CDI      writes the device-info file or the CDI spec; the body "gone" removes it
//	REPORT         compares as devinfoctl does
//	CHECK          compares without Explain
func TestReportsMatchGoldenFiles(t *testing.T) {
	goldentest.Archives(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) {
		w := &world{t: t, dir: t.TempDir()}
		for n := range archive.Files {
			w.step(&archive.Files[n])
		}
	})
}

const (
	boot    = "this-boot"
	infoDir = "/run/infos"
	cdiDir  = "/run/cdi"
)

// world is the state of one test: a host, a journal entry and files.
type world struct {
	t     *testing.T
	dir   string // root directory of the files
	host  *txtar.Archive
	entry journal.Entry
}

func (w *world) step(f *txtar.File) {
	w.t.Helper()
	word, arg, _ := strings.Cut(f.Name, " ")
	body := string(f.Data)
	switch word {
	case "HOST":
		w.captured(arg, strings.Fields(body)...)
	case "NETNS":
		w.without("netlink/netns.json")
		w.host.Files = append(w.host.Files, txtar.File{Name: "netlink/netns.json", Data: []byte(`{"/run/netns/pod": ` + body + `}`)})
	case "ENTRY":
		w.entry = journal.Entry{
			Key: journal.Key{Network: "net-a", ContainerID: "c0ffee", IfName: "net1"}, BootID: boot,
			Netns: "/run/netns/pod", Complete: true, Dir: infoDir,
		}
		w.must(json.Unmarshal(f.Data, &w.entry))
	case "FILE":
		w.write(infoDir, w.entry.File, body)
	case "CDI":
		w.write(cdiDir, w.entry.CDI.File, body)
	case "REPORT", "CHECK":
		goldentest.Section(w.t, f, w.report(word == "REPORT"))
	default:
		w.t.Fatalf("%s: no such step", f.Name)
	}
}

// captured loads a host of testdata/hosts, without some entries.
func (w *world) captured(name string, less ...string) {
	w.t.Helper()
	var err error
	w.host, err = txtar.ParseFile("../../../testdata/hosts/" + name + ".txtar")
	w.must(err)
	for _, entry := range less {
		w.without(entry)
	}
}

// without removes an entry of the host with everything below it.
func (w *world) without(entry string) {
	w.host.Files = slices.DeleteFunc(w.host.Files, func(f txtar.File) bool {
		return f.Name == entry || strings.HasPrefix(f.Name, entry+"/") || strings.HasPrefix(f.Name, entry+" ")
	})
}

func (w *world) write(dir, name, text string) {
	w.t.Helper()
	if text == "gone\n" {
		w.must(os.Remove(filepath.Join(w.dir, dir, name)))
		return
	}
	difftest.Write(w.t, filepath.Join(w.dir, dir, name), text, 0o644)
}

func (w *world) must(errs ...error) {
	w.t.Helper()
	difftest.Must(w.t, errs...)
}

func (w *world) checker() *check.Checker {
	w.t.Helper()
	host, err := capturefile.Parse(txtar.Format(w.host))
	w.must(err)
	links, err := linkhost.New(host)
	w.must(err)
	j := journal.Open(filepath.Join(w.dir, "journal"), boot)
	j.NetnsGone = func(path string) (bool, error) { return !links.HasNetns(path), nil }
	return &check.Checker{
		Finder:  &discovery.Finder{Sys: sysfs.New(host.Sys()), Interfaces: links, Eswitches: links},
		Dir:     func(path string) *store.Dir { return store.Open(filepath.Join(w.dir, path)) },
		Journal: j,
	}
}

// report formats the result of a comparison. It also checks that the state fits the facts.
func (w *world) report(explain bool) string {
	w.t.Helper()
	a := w.checker()
	a.Explain = explain
	state, r := a.Check(&w.entry, nil)
	var b strings.Builder
	fmt.Fprintf(&b, "state: %s\n", state)
	bad := false
	for _, f := range r.Facts {
		fmt.Fprintf(&b, "%s | %s | %s | %s | %s | %s\n", f.Fact, cmp.Or(f.Journal, "-"), cmp.Or(f.File, "-"), cmp.Or(f.Now, "-"), cmp.Or(f.Source, "-"), f.Verdict)
		bad = bad || f.Verdict == check.Differs || f.Verdict == check.Gone
	}
	if bad && r.Problem == nil {
		w.t.Error("a fact differs, and there is no problem")
	}
	if r.Problem != nil && state == check.OK {
		w.t.Errorf("state %s, problem %v", state, r.Problem)
	}
	if p := r.Problem; p != nil {
		fmt.Fprintf(&b, "problem: %v\nremedy: %s\n", p, p.Remedy())
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", warning)
	}
	for _, f := range r.Changed() {
		fmt.Fprintf(&b, "changed: %s\n", f.Change())
	}
	if r.ReadError != nil {
		fmt.Fprintf(&b, "read error: %v\n", r.ReadError)
	}
	for _, what := range r.NotCompared {
		fmt.Fprintf(&b, "not compared: %s\n", what)
	}
	return strings.ReplaceAll(b.String(), w.dir, "")
}

func TestUnreadableEntryIsNotCompared(t *testing.T) {
	for _, test := range []struct {
		err    error
		state  check.State
		remedy string
	}{
		{&store.CorruptError{Path: "/a", Err: errors.New("x")}, check.Corrupt, "the runtime's DEL or GC removes it"},
		{fmt.Errorf("/a: %w", store.ErrTooLarge), check.Corrupt, "the runtime's DEL or GC removes it"},
		{&journal.FormatError{Path: "/a", Format: 9}, check.Newer, "install the newer devinfo that wrote it, or a later one"},
		{fs.ErrPermission, check.Unknown, ""},
	} {
		state, r := new(check.Checker).Check(nil, test.err)
		difftest.Equal(t, []any{state, r.Err().Error(), len(r.Facts)}, []any{test.state, test.err.Error(), 0})
		if test.remedy != "" {
			difftest.Equal(t, r.Problem.Remedy(), test.remedy)
		}
	}
}

func TestNetnsOfUnknownStateIsNotGone(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	w.captured("igb-sriov") // has no pod
	a, unseen := w.checker(), errors.New("not seen from here")
	a.Journal.NetnsGone = func(string) (bool, error) { return false, unseen }
	e := &journal.Entry{
		Key: journal.Key{IfName: "net1"}, BootID: boot, Netns: "/run/netns/pod", InNetns: true, Complete: true,
		Device: journal.Identity{Type: "pci", ID: "0000:01:10.0"},
	}
	state, why := a.State(e, nil)
	difftest.Equal(t, []any{state, why}, []any{check.Unknown, "not seen from here"})
	_, r := a.Check(e, nil)
	want := []check.Item{
		{Fact: "interface", Journal: "net1", Source: "/run/netns/pod", Verdict: check.Unseen},
		{Fact: "pci.pci-address", Journal: "0000:01:10.0", Verdict: check.NotStated},
	}
	difftest.Equal(t, r.Facts, want)
	if r.Problem != nil || !errors.Is(r.Err(), unseen) {
		t.Errorf("%+v", r)
	}
	target, err := check.Target(e)
	w.must(err)
	difftest.Equal(t, a.Compare(e, target).Problem.State, check.Stale) // the host has no such namespace
	e.Complete, e.File, e.Wrote = false, "net1", true                  // ADD runs and has not written its file yet
	state, r = a.Check(e, nil)
	difftest.Equal(t, []any{state, r.Err() == nil}, []any{check.Adding, true})
}

// The state of an attachment is by the name of its device. The path of a socket is one in the container.
func TestDeviceIsGoneIfTheNodeHasNoneOfItsName(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	w.captured("mlx5-vdpa")
	a := w.checker()
	for of, want := range map[journal.Identity]check.State{
		{}: check.OK, {Type: "pci"}: check.OK, {Type: "pci", ID: "0000:65:00.3"}: check.OK, {Type: "pci", ID: "0000:65:1f.7"}: check.DeviceLost,
		{Type: "vdpa", ID: "vdpa4"}: check.OK, {Type: "vdpa", ID: "vdpa99"}: check.DeviceLost,
		{Type: "vdpa", ID: "0000:65:00.3"}: check.OK, {Type: "vdpa", ID: "0000:65:1f.7"}: check.DeviceLost,
		{Type: "vhost-user", ID: "/run/app/gone.sock"}: check.OK, {Type: "memif", ID: "vdpa99"}: check.OK,
	} {
		state, why := a.State(&journal.Entry{BootID: boot, Complete: true, Device: of}, nil)
		if state != want || strings.Contains(why, of.ID) != (want == check.DeviceLost || of.ID == "") {
			t.Errorf("%v: %s, %q", of, state, why)
		}
	}
}

func TestUnreadableFileIsReportedAsUnreadable(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	w.captured("mlx5-legacy")
	w.must(os.MkdirAll(filepath.Join(w.dir, infoDir, "pod1"), 0o755), os.MkdirAll(filepath.Join(w.dir, cdiDir, "spec"), 0o755), os.Symlink("loop", filepath.Join(w.dir, "loop")))
	for _, e := range []*journal.Entry{{File: "pod1", Dir: infoDir, Wrote: true}, {CDI: journal.CDI{Dir: cdiDir, File: "spec"}}} {
		difftest.Equal(t, w.checker().Compare(e, discovery.Target{}).Problem.State, check.BadFile)
		e.Dir, e.CDI.Dir = "/loop", "/loop" // of which nothing is known
		r := w.checker().Compare(e, discovery.Target{})
		difftest.Is(t, r.Err(), syscall.ELOOP)
		difftest.Equal(t, []any{r.Err().State, r.Facts[0].Verdict}, []any{check.Unknown, check.Unseen})
	}
}
