package journal_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/journal"
)

const boot = "5d0a2b6c-boot"

var (
	key1 = journal.Key{Network: "net-a", ContainerID: "c0ffee", IfName: "net1"}
	key2 = journal.Key{Network: "net-a", ContainerID: "decade", IfName: "net1"}
)

func open(t *testing.T) (*journal.Journal, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "devinfo")
	return journal.Open(dir, boot), dir
}

func put(t *testing.T, j *journal.Journal, k journal.Key, file string) {
	t.Helper()
	if err := j.Put(&journal.Entry{Key: k, File: file}); err != nil {
		t.Fatal(err)
	}
}

// files lists what is in the state directory, temporaries included; a link is
// followed by its target.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var got []string
	for _, sub := range []string{"attachments", "files"} {
		list, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range list {
			line := sub + "/" + e.Name()
			if target, err := os.Readlink(filepath.Join(dir, line)); err == nil {
				line += " -> " + target
			}
			got = append(got, line)
		}
	}
	return got
}

func expectFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := files(t, dir); !reflect.DeepEqual(got, want) {
		t.Errorf("the state directory holds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestGetReturnsWhatWasPut(t *testing.T) {
	j, dir := open(t)
	want := &journal.Entry{
		Key: key1, Netns: "/run/netns/x", Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		File: "net-a-c0ffee_net1", Dir: "/run/k8s.cni.cncf.io/devinfo/cni", Created: false,
		Before: []byte("not JSON: \x00\xff\n"), Wrote: true, InNetns: true,
		Device:         journal.Device{Type: "pci", ID: "0000:3b:00.2"},
		Delegates:      []json.RawMessage{json.RawMessage(`{"type":"sriov","name":"net-a"}`)},
		CNIVersion:     "1.1.0",
		Args:           "K8S_POD_NAME=p",
		CapabilityArgs: map[string]json.RawMessage{"mac": json.RawMessage(`"0a:00:00:00:00:01"`)},
		PrevResult:     json.RawMessage(`{"cniVersion":"1.1.0"}`),
		Result:         json.RawMessage(`{"ips":[]}`),
		Complete:       true,
	}
	if err := j.Put(want); err != nil {
		t.Fatal(err)
	}
	if want.BootID != boot {
		t.Errorf("boot ID: got %q", want.BootID)
	}
	if got, err := j.Get(key1); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	expectFiles(t, dir, "attachments/net-a@c0ffee@net1", "files/net-a-c0ffee_net1 -> ../attachments/net-a@c0ffee@net1")
}

func TestGetOfAnUnknownAttachmentIsNil(t *testing.T) {
	j, dir := open(t)
	if e, err := j.Get(key1); e != nil || err != nil {
		t.Errorf("got %v, %v", e, err)
	}
	expectFiles(t, dir)
}

func TestKeysOfNewerVersionsAreIgnored(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "")
	overwrite(t, dir, key1, `{"network": "net-a", "containerID": "c0ffee", "ifName": "net1", "args": "x", "new": {"a": [1]}}`)
	want := &journal.Entry{Key: key1, Args: "x"}
	if got, err := j.Get(key1); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestEntriesThatMakeNoSenseAreCorruptAndGiveWay(t *testing.T) {
	j, dir := open(t)
	for _, content := range []string{"", "null", "{}", "[]", `{"network": "net-a"`, `{"network": "b", "containerID": "c", "ifName": "d"}`} {
		put(t, j, key1, "f")
		overwrite(t, dir, key1, content)
		var corrupt *store.CorruptError
		if e, err := j.Get(key1); e != nil || !errors.As(err, &corrupt) || corrupt.Path != filepath.Join(dir, "attachments", "net-a@c0ffee@net1") {
			t.Errorf("%q: got %v, %v", content, e, err)
		}
		put(t, j, key1, "f")
		if e, err := j.Get(key1); e == nil || err != nil {
			t.Errorf("%q: after Put: got %v, %v", content, e, err)
		}
		overwrite(t, dir, key1, content)
		if err := j.Drop(key1); err != nil {
			t.Errorf("%q: Drop: %v", content, err)
		}
		put(t, j, key2, "f") // nobody's: the claim is stale
		if err := j.Drop(key2); err != nil {
			t.Error(err)
		}
	}
	expectFiles(t, dir)
}

func overwrite(t *testing.T, dir string, k journal.Key, content string) {
	t.Helper()
	path := filepath.Join(dir, "attachments", strings.ReplaceAll(k.String(), "/", "@"))
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKeysThatCNIForbidsAreRefused(t *testing.T) {
	j, dir := open(t)
	for _, k := range []journal.Key{
		{}, {"n", "c", ""}, {"n", "", "i"}, {"", "c", "i"}, {"../n", "c", "i"}, {"n", "c/d", "i"}, {"n@m", "c", "i"},
		{"n", "c@d", "i"}, {".n", "c", "i"}, {"n", "-c", "i"}, {"n", "c", "a/b"}, {"n", "c", "a\x00"}, {"n\n", "c", "i"},
	} {
		_, err := j.Get(k)
		for method, err := range map[string]error{"Get": err, "Put": j.Put(&journal.Entry{Key: k}), "Drop": j.Drop(k)} {
			if err == nil {
				t.Errorf("%s(%q): no error", method, k)
			}
		}
	}
	expectFiles(t, dir)
}

func TestNamesTooLongForAFileAreErrors(t *testing.T) {
	j, dir := open(t)
	long := journal.Key{Network: strings.Repeat("n", 190), ContainerID: strings.Repeat("c", 64), IfName: "net1"}
	var bad *store.NameError
	if err := j.Put(&journal.Entry{Key: long, File: "f"}); !errors.As(err, &bad) {
		t.Errorf("got %v", err)
	}
	if err := j.Put(&journal.Entry{Key: key1, File: "../f"}); !errors.As(err, &bad) {
		t.Errorf("got %v", err)
	}
	expectFiles(t, dir)
}

func TestInterfaceNamesMayHoldTheSeparator(t *testing.T) {
	j, _ := open(t)
	k := journal.Key{Network: "n", ContainerID: "c", IfName: "a@b@c"}
	put(t, j, k, "f")
	if got, ok, err := j.Owner("f"); got != k || !ok || err != nil {
		t.Errorf("got %v, %v, %v", got, ok, err)
	}
}

func TestListKnowsNetworksApart(t *testing.T) {
	j, dir := open(t)
	if keys, err := j.All(); len(keys) != 0 || err != nil {
		t.Errorf("of nothing: got %v, %v", keys, err)
	}
	other := journal.Key{Network: "net-a.b", ContainerID: "c0ffee", IfName: "net1"}
	for _, k := range []journal.Key{other, key2, key1} {
		put(t, j, k, "")
	}
	if err := os.WriteFile(filepath.Join(dir, "attachments", "README"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := j.List("net-a"); err != nil || !reflect.DeepEqual(got, []journal.Key{key1, key2}) {
		t.Errorf("List: got %v, %v", got, err)
	}
	if got, err := j.All(); err != nil || !reflect.DeepEqual(got, []journal.Key{other, key1, key2}) {
		t.Errorf("All: got %v, %v", got, err)
	}
}

func TestDropIsIdempotentAndLeavesNothing(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "f")
	put(t, j, key2, "g")
	for range 2 {
		if err := j.Drop(key1); err != nil {
			t.Error(err)
		}
	}
	expectFiles(t, dir, "attachments/net-a@decade@net1", "files/g -> ../attachments/net-a@decade@net1")
}

func TestStateIsPrivate(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "f")
	for path, want := range map[string]os.FileMode{"attachments": 0o700, "files": 0o700, "attachments/net-a@c0ffee@net1": 0o600} {
		if stat, err := os.Stat(filepath.Join(dir, path)); err != nil || stat.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want %o", path, stat.Mode(), err, want)
		}
	}
}

func TestWritableMakesNothing(t *testing.T) {
	j, dir := open(t)
	if err := j.Writable(); err != nil {
		t.Error(err)
	}
	expectFiles(t, dir)
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := j.Writable(); err == nil || !strings.HasPrefix(err.Error(), dir+": ") {
		t.Errorf("below a file: got %v", err)
	}
}

func TestBootIDStaysTheSame(t *testing.T) {
	first, err := journal.BootID()
	second, _ := journal.BootID()
	if err != nil || len(first) != 36 || first != second {
		t.Errorf("got %q, %q, %v", first, second, err)
	}
}
