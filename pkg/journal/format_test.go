package journal_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"devinfo-cni.io/pkg/journal"
)

// The files of testdata/format1 are as the build before format 2 has written them.
func TestEntriesOfFormat1AreReadAsTheyAre(t *testing.T) {
	j, dir := withFormat1(t, "c34b77d7-30da-4147-b609-d250b3109e33")
	chained := journal.Key{Network: "net-a", ContainerID: "chained", IfName: "net1"}
	got, err := j.Get(chained)
	must(t, err)
	want := &journal.Entry{
		Key: chained, Netns: "/run/netns/devinfo-old", BootID: "c34b77d7-30da-4147-b609-d250b3109e33",
		Time: time.Date(2026, 11, 21, 13, 56, 8, 667460351, time.UTC),
		File: "net-a-chained_net1", Dir: "/tmp/old/infos", Created: true, Wrote: true, InNetns: true,
		Device:     journal.Device{Type: "memif", ID: "/tmp/old/sockets/pod-1/m.sock"},
		CDI:        journal.CDI{Dir: "/tmp/old/cdi", File: "devinfo-cni.io-attachment_chained:net1.json", Device: "devinfo-cni.io/attachment=chained:net1"},
		CNIVersion: "1.1.0", Complete: true,
	}
	if !reflect.DeepEqual(exported(t, got), exported(t, want)) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	delegating, err := j.Get(journal.Key{Network: "net-b", ContainerID: "delegating", IfName: "net2"})
	must(t, err)
	var bridge struct{ Type, Bridge string }
	if len(delegating.Delegates) != 1 || json.Unmarshal(delegating.Delegates[0], &bridge) != nil || bridge.Bridge != "olddevbr0" ||
		delegating.Format != 0 || !reflect.DeepEqual(delegating.Asked, journal.Asked{}) || delegating.Info != nil {
		t.Errorf("got %+v", delegating)
	}

	expectOwner(t, j, want.File, chained, true)
	expectSpecOwner(t, j, want.CDI.File, chained, true)
	refuse(t, j, &journal.Entry{Key: key1, File: want.File})
	before := files(t, dir)
	undo, err := j.Put(&journal.Entry{Key: chained, File: want.File}, got)
	must(t, err)
	must(t, undo())
	expectFiles(t, dir, before...)
	if again := former(t, j, chained); !reflect.DeepEqual(again, got) {
		t.Errorf("after Put and undo: got %+v, want %+v", again, got)
	}
	must(t, j.Forget(got), j.Forget(delegating))
	expectFiles(t, dir)
}

// withFormat1 is a state directory with these entries and their claims.
func withFormat1(t *testing.T, boot string) (*journal.Journal, string) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "files"), 0o700), os.Mkdir(filepath.Join(dir, "cdi"), 0o700),
		os.CopyFS(filepath.Join(dir, "attachments"), os.DirFS("testdata/format1")))
	link(t, "../attachments/net-a@chained@net1", filepath.Join(dir, "files/net-a-chained_net1"))
	link(t, "../attachments/net-a@chained@net1", filepath.Join(dir, "cdi/devinfo-cni.io-attachment_chained:net1.json"))
	link(t, "../attachments/net-b@delegating@net2", filepath.Join(dir, "files/net-b-delegating_net2"))
	return journal.Open(dir, boot), dir
}

// exported is an entry without the content of its file.
func exported(t *testing.T, e *journal.Entry) map[string]any {
	t.Helper()
	all := map[string]any{}
	for v, n := reflect.ValueOf(*e), 0; n < v.NumField(); n++ {
		if f := v.Type().Field(n); f.IsExported() {
			all[f.Name] = v.Field(n).Interface()
		}
	}
	return all
}

func TestLockFilesOfFormat1AreSwept(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "f")
	must(t, os.WriteFile(filepath.Join(dir, "files/.g.tmp"), nil, 0o600))
	var swept []string
	must(t, j.Sweep(func(path string) { swept = append(swept, path) }))
	if want := []string{"files/.g.tmp"}; !reflect.DeepEqual(swept, want) {
		t.Errorf("swept %q, want %q", swept, want)
	}
}

// Whatever it looks like: keys may have other types by then, or be gone.
func TestAnEntryOfANewerFormatIsLeftAlone(t *testing.T) {
	for _, content := range []string{
		`{"format":3,"network":"net-a","containerID":"c0ffee","ifName":"net1","bootID":"` + boot + `","file":"f"}`,
		`{"format":3}`,
		`{"network":["net-a"],"time":7,"before":{},"former":"x","asked":[],"netns":1,"format":3,"delegates":{"a":1}}`,
		`{"time":"yesterday","format":3}`,
	} {
		j, dir := open(t)
		putEntry(t, j, everything(key1))
		overwrite(t, dir, key1, content)
		before := files(t, dir)
		_, get := j.Get(key1)
		_, put := j.Put(&journal.Entry{Key: key1, File: "f"}, nil)
		for method, err := range map[string]error{"Get": get, "Put": put, "Forget": j.Forget(everything(key1))} {
			var newer *journal.FormatError
			path := filepath.Join(dir, "attachments/net-a@c0ffee@net1")
			if !errors.As(err, &newer) || *newer != (journal.FormatError{Path: path, Format: 3}) {
				t.Errorf("%s: got %v", method, err)
			}
			if want := path + ": has format 3, and this devinfo knows formats up to 2"; err == nil || err.Error() != want {
				t.Errorf("%s: got %v, want %s", method, err, want)
			}
		}
		must(t, j.Sweep(func(path string) { t.Errorf("swept %s", path) }))
		expectOwner(t, j, "f", key1, true)
		expectSpecOwner(t, j, "s", key1, true)
		for _, e := range []*journal.Entry{{File: "f"}, {File: "g"}, {CDI: journal.CDI{File: "s"}}, {SocketDir: "/d", Pod: "p"}, {SocketDir: "/d", Pod: "q"}} {
			e.Key = key2
			var owned *journal.OwnedError
			if err := refuse(t, j, e); !errors.As(err, &owned) || owned.Owner != key1 {
				t.Errorf("%+v: got %v", e, err)
			}
		}
		expectFiles(t, dir, before...)
		expectContent(t, dir, key1, content)
		if all, err := j.All(); err != nil || !reflect.DeepEqual(all, []journal.Key{key1}) {
			t.Errorf("all: got %v, %v", all, err)
		}
	}
}

func TestTheNewestFormatIsThatOfAnyEntry(t *testing.T) {
	dir := t.TempDir()
	j := journal.Open(dir, boot)
	newest := func(want int) {
		t.Helper()
		if got, err := j.NewestFormat(); got != want || err != nil {
			t.Errorf("got %d, %v; want %d", got, err, want)
		}
	}
	newest(0)
	put(t, j, key1, "x")
	newest(journal.Format)
	overwrite(t, dir, key2, `{"format": 9, "network": 7}`)
	newest(9)
	overwrite(t, dir, key2, `torn`)
	newest(journal.Format)
	old, _ := withFormat1(t, boot)
	if got, err := old.NewestFormat(); got != 1 || err != nil {
		t.Errorf("of format 1: got %d, %v", got, err)
	}
}
