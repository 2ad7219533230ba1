package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"devinfo-cni.io/pkg/journal"
)

// Whatever it looks like: keys may have other types by then, or be gone.
func TestAnEntryOfANewerFormatIsLeftAlone(t *testing.T) {
	for _, content := range []string{
		`{"format":99,"network":"net-a","containerID":"c0ffee","ifName":"net1","bootID":"` + boot + `","file":"f"}`,
		`{"format":99}`,
		`{"network":["net-a"],"time":7,"before":{},"former":"x","asked":[],"netns":1,"format":99,"delegates":{"a":1}}`,
		`{"time":"yesterday","format":99}`,
	} {
		j, dir := open(t)
		record(t, j, everything(key1, "p"))
		overwrite(t, dir, key1, content)
		before := files(t, dir)
		_, get := j.Get(key1)
		_, lock := j.Lock(t.Context(), key1, 0)
		for method, err := range map[string]error{"Get": get, "Lock": lock} {
			var newer *journal.FormatError
			path := filepath.Join(dir, "attachments/net-a@c0ffee@net1")
			if !errors.As(err, &newer) || *newer != (journal.FormatError{Path: path, Format: 99}) {
				t.Errorf("%s: got %v", method, err)
			}
			if want := path + ": has format 99, and this devinfo knows formats up to 3"; err == nil || err.Error() != want {
				t.Errorf("%s: got %v, want %s", method, err, want)
			}
		}
		must(t, j.Sweep(func(path string) { t.Errorf("swept %s", path) }))
		if err := j.Record(&journal.Entry{Key: key1, File: "f"}, nil); !errors.As(err, new(*journal.BetweenError)) {
			t.Errorf("Record: got %v", err)
		}
		expectOwner(t, j, "f", &key1)
		for _, e := range []*journal.Entry{{File: "f"}, {CDI: journal.CDI{File: "s"}}, {SocketDir: "/d", Pod: "p"}, {Leases: has("pci-vf", journal.Shared)}} {
			e.Key = key2
			if held := refuse(t, j, e); held.Holder.Entry.Key != key1 {
				t.Errorf("%+v: got %v", e, held)
			}
		}
		expectFiles(t, dir, before...)
		if got, err := os.ReadFile(filepath.Join(dir, "attachments/net-a@c0ffee@net1")); err != nil || string(got) != content {
			t.Errorf("the entry holds %q, %v", got, err)
		}
		if all, err := j.All(); err != nil || !reflect.DeepEqual(all, []journal.Key{key1}) {
			t.Errorf("all: got %v, %v", all, err)
		}
	}
}

func TestThePodsOfNewerEntriesAreNamed(t *testing.T) {
	dir := t.TempDir()
	j := journal.Open(dir, boot)
	newer := func(than int, want ...string) {
		t.Helper()
		if got, err := j.Newer(than); !slices.Equal(got, want) || err != nil {
			t.Errorf("than %d: got %q, %v; want %q", than, got, err, want)
		}
	}
	newer(0)
	e := everything(key1, "p")
	e.Args = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web"
	record(t, j, e)
	newer(journal.Format)
	newer(journal.Format-1, "shop/web")
	for text, want := range map[string]string{
		`{"format": 9, "network": 7}`: key2.String(),
		`{"format": 9, "time": "soon", "args": "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"}`: "a/b",
	} {
		overwrite(t, dir, key2, text)
		newer(journal.Format, want)
		newer(9)
	}
	overwrite(t, dir, key2, `torn`)
	newer(journal.Format)
}
