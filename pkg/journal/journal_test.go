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

func TestGetReturnsWhatWasPut(t *testing.T) {
	j, dir := open(t)
	want := &journal.Entry{
		Key: key1, Netns: "/run/netns/x", Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		File: "net-a-c0ffee_net1", Dir: "/run/k8s.cni.cncf.io/devinfo/cni", Created: false,
		Before: []byte("not JSON: \x00\xff\n"), Wrote: true, InNetns: true,
		Pod: "0b5a", Info: json.RawMessage(`{"type":"pci"}`),
		Asked: journal.Asked{DeviceIDs: []journal.DeviceID{{Key: "deviceID", ID: "0000:3b:00.2"}}, PCIID: "0000:3b:00.2",
			Declared: json.RawMessage(`{"pci":{"rdma-device":"mlx5_0<&>"}}`), SocketPath: "/s", FollowLower: true, SubfunctionParent: true},
		CDI: journal.CDI{Dir: "/run/cdi", File: "s", Device: "a/b=c"}, SocketDir: "/run/pods/0b5a",
		Former:         []journal.Names{{File: "old", Dir: "/d"}, {CDI: journal.CDI{File: "r"}}, {SocketDir: "/run/pods/0b5a-old"}},
		Device:         journal.Device{Type: "pci", ID: "0000:3b:00.2"},
		Delegates:      []json.RawMessage{json.RawMessage(`{"type":"sriov","name":"net-a"}`)},
		CNIVersion:     "1.1.0",
		Args:           "K8S_POD_NAME=p",
		CapabilityArgs: map[string]json.RawMessage{"mac": json.RawMessage(`"0a:00:00:00:00:01"`)},
		PrevResult:     json.RawMessage(`{"cniVersion":"1.1.0"}`),
		Result:         json.RawMessage(`{"ips":[]}`),
		Complete:       true,
	}
	putEntry(t, j, want)
	if want.BootID != boot || want.Format != 2 {
		t.Errorf("boot ID %q, format %d", want.BootID, want.Format)
	}
	if got, err := j.Get(key1); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	const to = " -> ../attachments/net-a@c0ffee@net1"
	expectFiles(t, dir, "attachments/net-a@c0ffee@net1", "cdi/r"+to, "cdi/s"+to, "files/net-a-c0ffee_net1"+to, "files/old"+to,
		"sockets/run%2Fpods%2F0b5a/", "sockets/run%2Fpods%2F0b5a/net-a@c0ffee@net1 -> ../../attachments/net-a@c0ffee@net1",
		"sockets/run%2Fpods%2F0b5a-old/", "sockets/run%2Fpods%2F0b5a-old/net-a@c0ffee@net1 -> ../../attachments/net-a@c0ffee@net1")
	must(t, j.Forget(want), j.Forget(want))
	expectFiles(t, dir)
}

func TestGetOfAnUnknownAttachmentIsNil(t *testing.T) {
	j, dir := open(t)
	if e, err := j.Get(key1); e != nil || err != nil {
		t.Errorf("got %v, %v", e, err)
	}
	expectFiles(t, dir)
}

func TestKeysThatAreNotKnownAreIgnored(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "")
	overwrite(t, dir, key1, `{"network": "net-a", "containerID": "c0ffee", "ifName": "net1", "args": "x", "new": {"a": [1]}}`)
	got, err := j.Get(key1)
	must(t, err)
	if got.Key != key1 || got.Args != "x" || got.Format != 0 {
		t.Errorf("got %+v", got)
	}
}

// Only a power failure tears an entry.
func TestEntriesThatMakeNoSenseAreCorruptAndGiveWay(t *testing.T) {
	j, dir := open(t)
	for _, content := range []string{"", "null", "{}", "[]", `{"network": "net-a"`, "\x00\x00", `{"network": "b", "containerID": "c", "ifName": "d"}`,
		`{"network": "net-a", "containerID": "c0ffee", "ifName": "net1", "before": 1}`} {
		put(t, j, key1, "f")
		overwrite(t, dir, key1, content)
		var corrupt *store.CorruptError
		if e, err := j.Get(key1); e != nil || !errors.As(err, &corrupt) || corrupt.Path != filepath.Join(dir, "attachments", "net-a@c0ffee@net1") {
			t.Errorf("%q: got %v, %v", content, e, err)
		}
		if claimed, err := j.Claims(key1); err != nil || !reflect.DeepEqual(claimed, []string{"f"}) {
			t.Errorf("claims: got %q, %v", claimed, err)
		}
		put(t, j, key1, "f")
		if e, err := j.Get(key1); e == nil || err != nil {
			t.Errorf("%q: after Put: got %v, %v", content, e, err)
		}
		overwrite(t, dir, key1, content)
		must(t, j.Sweep(func(path string) { t.Errorf("%q: swept %s", content, path) }))
		must(t, j.Forget(&journal.Entry{Key: key1}))
		put(t, j, key2, "f") // nobody's: the claim is stale
		must(t, j.Forget(former(t, j, key2)))
	}
	expectFiles(t, dir)
}

func TestKeysThatCNIForbidsAreRefused(t *testing.T) {
	j, dir := open(t)
	for _, k := range []journal.Key{
		{}, {"n", "c", ""}, {"n", "", "i"}, {"", "c", "i"}, {"../n", "c", "i"}, {"n", "c/d", "i"}, {"n@m", "c", "i"},
		{"n", "c@d", "i"}, {".n", "c", "i"}, {"n", "-c", "i"}, {"n", "c", "a/../../b"}, {"n", "c", "a\x00"}, {"n\n", "c", "i"},
	} {
		_, get := j.Get(k)
		_, put := j.Put(&journal.Entry{Key: k}, nil)
		_, sockets := j.SocketClaims(k)
		for method, err := range map[string]error{"Get": get, "Put": put, "Forget": j.Forget(&journal.Entry{Key: k}), "SocketClaims": sockets} {
			if err == nil {
				t.Errorf("%s(%q): no error", method, k)
			}
		}
		if lock := j.Lock(k); lock != "" {
			t.Errorf("Lock(%q): got %s", k, lock)
		}
	}
	expectFiles(t, dir)
}

func TestNamesThatNoFileCanHaveAreErrors(t *testing.T) {
	j, dir := open(t)
	long := journal.Key{Network: strings.Repeat("n", 190), ContainerID: strings.Repeat("c", 64), IfName: "net1"}
	for _, e := range []*journal.Entry{
		{Key: long, File: "f"}, {Key: key1, File: "../f"}, {Key: key1, File: "f", CDI: journal.CDI{File: ".s"}},
		{Key: key1, File: "f", SocketDir: "/" + strings.Repeat("d", 251)}, {Key: key1, File: strings.Repeat("f", 251)},
	} {
		var bad *store.NameError
		if _, err := j.Put(e, nil); !errors.As(err, &bad) {
			t.Errorf("got %v", err)
		}
		if err := j.Forget(e); err != nil && !errors.As(err, &bad) { // by DEL, all the same
			t.Errorf("Forget: got %v", err)
		}
	}
	expectFiles(t, dir)
}

// An ADD that was killed before its claims were refused.
func TestAnEntryWithANameThatIsRefusedIsForgotten(t *testing.T) {
	j, dir := open(t)
	put(t, j, key1, "f")
	overwrite(t, dir, key1, `{"format": 2, "network": "net-a", "containerID": "c0ffee", "ifName": "net1", "bootID": "`+boot+`", "file": "../g",
		"former": [{"file": "f"}, {"socketDir": "/`+strings.Repeat("d", 251)+`"}]}`)
	must(t, j.Forget(former(t, j, key1)))
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

func TestForgetIsIdempotentAndLeavesNothing(t *testing.T) {
	j, dir := open(t)
	e := put(t, j, key1, "f")
	put(t, j, key2, "g")
	must(t, os.WriteFile(filepath.Join(dir, "attachments/.net-a@c0ffee@net1.tmp"), []byte("half"), 0o600)) // of a Put that was killed
	for range 2 {
		must(t, j.Forget(e))
	}
	expectFiles(t, dir, "attachments/net-a@decade@net1", "files/g -> ../attachments/net-a@decade@net1")
	must(t, j.Forget(&journal.Entry{Key: journal.Key{Network: "n", ContainerID: "c", IfName: "i"}, File: "g"})) // not its own
	expectOwner(t, j, "g", key2, true)
}

func TestStateIsPrivate(t *testing.T) {
	j, dir := open(t)
	putEntry(t, j, &journal.Entry{Key: key1, File: "f", SocketDir: "/d", Pod: "p"})
	for path, want := range map[string]os.FileMode{"attachments": 0o700, "files": 0o700, "sockets": 0o700, "sockets/d": 0o700,
		"attachments/net-a@c0ffee@net1": 0o600} {
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

func TestAnEntryThatWasWrittenAgainIsAnother(t *testing.T) {
	j, _ := open(t)
	put(t, j, key1, "f")
	read, err := j.Get(key1)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want bool) {
		t.Helper()
		if same, err := j.Unchanged(read); same != want || err != nil {
			t.Errorf("unchanged: %v, %v", same, err)
		}
	}
	expect(true)
	again := put(t, j, key1, "g")
	expect(false)
	if err := j.Forget(again); err != nil {
		t.Fatal(err)
	}
	expect(false)
}
