package journal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
)

func TestGetReturnsRecordedEntry(t *testing.T) {
	j, dir := open(t)
	want := complete()
	record(t, j, want)
	difftest.Same(t, "boot ID and format", []any{want.BootID, want.Format}, []any{boot, journal.Format})
	if got := former(t, j, want.Key); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	const name, to = "net@c0ffee@net1", " -> ../../../attachments/net@c0ffee@net1"
	expectFiles(t, dir, "attachments/"+name,
		"leases/device/pci-0000:01:00.0/", "leases/device/pci-0000:01:00.0/~"+name+to,
		"leases/device/pci-0000:01:10.0/", "leases/device/pci-0000:01:10.0/"+name+to,
		"leases/file/net-c0ffee_net1/", "leases/file/net-c0ffee_net1/"+name+to,
		"leases/socket/%2Frun%2Fsockets%2F6e0c/", "leases/socket/%2Frun%2Fsockets%2F6e0c/"+name+to,
		"leases/spec/a_b.json/", "leases/spec/a_b.json/"+name+to)
	expectOwner(t, j, want.File, &want.Key)
	must(t, os.MkdirAll(j.Cache(want.Key)+"/results", 0o700), j.Forget(want), j.Forget(want))
	expectOwner(t, j, want.File, nil)
	expectFiles(t, dir)
	record(t, j, everything(key1, "p"))
	put(t, j, key1, "f") // releases all other leases
	expectFiles(t, dir, "attachments/net-a@c0ffee@net1", "leases/file/f/", "leases/file/f/net-a@c0ffee@net1 -> ../../../attachments/net-a@c0ffee@net1")
}

// Without the lock, a sweep could take the leases for those of a killed ADD.
func TestFirstRecordMakesTheDirectoryThatIsLocked(t *testing.T) {
	for what, record := range map[string]func(j *journal.Journal) error{
		"Put":  func(j *journal.Journal) error { e := &journal.Entry{Key: key1}; defer e.Unlock(); return j.Put(e, nil) },
		"Hold": func(j *journal.Journal) error { return j.Hold(&journal.Claim{UID: "u1"}) },
	} {
		j, dir := open(t)
		must(t, os.MkdirAll(dir+"/attachments", 0o700), os.Mkdir(dir+"/claims", 0o700), os.Chmod(dir, 0o500))
		difftest.WithModes(t, func() { difftest.Is(t, record(j), fs.ErrPermission) })
		must(t, os.Chmod(dir, 0o700), record(j))
		difftest.Same(t, what, difftest.Names(t, dir), []string{"attachments", "claims", "leases"})
	}
}

// complete returns an entry with every key set.
func complete() *journal.Entry {
	return &journal.Entry{
		Format: journal.Format, Key: journal.Key{Network: "net", ContainerID: "c0ffee", IfName: "net1"}, Netns: "/run/netns/a", BootID: "b", Time: time.Unix(1, 2).UTC(), Pod: "6e0c",
		Requested: journal.Requested{
			DeviceIDs: []config.NamedID{{Key: "deviceID", ID: "0000:01:10.0"}}, Declared: json.RawMessage(`{"type":"pci"}`), PCIID: "0000:01:10.0", SocketPath: "/s",
			FollowLower: true, SubfunctionParent: true,
		},
		File: "net-c0ffee_net1", Dir: "/run/infos", Wrote: true, Kept: true, Info: json.RawMessage(`{}`), InNetns: true,
		Device: journal.Identity{Type: "pci", ID: "0000:01:10.0"}, CDI: journal.CDI{Dir: "/run/cdi", File: "a_b.json", Device: "a/b=c"}, SocketDir: "/run/sockets/6e0c",
		Leases:    []journal.DeviceLease{{ID: "pci-0000:01:10.0", Mode: journal.Exclusive, Object: 7}, {ID: "pci-0000:01:00.0", Mode: journal.Shared}},
		Delegates: []json.RawMessage{json.RawMessage(`{"type":"bridge"}`)}, CNIVersion: "1.1.0", Args: "IgnoreUnknown=1",
		CapabilityArgs: map[string]json.RawMessage{"mac": json.RawMessage("\"<\u2028>\"")}, PrevResult: json.RawMessage(`{}`), Result: json.RawMessage(`{}`), Complete: true,
	}
}

// The beginning of a corrupt entry still counts for its leases. A killed ADD may not have taken all leases that its entry
// names, so another attachment may have one of them.
func TestFailedRecordChangesNothing(t *testing.T) {
	const torn = `{"network": "net-a", "containerID": "c0ffee", "ifName": "net1", "file`
	for what, spoil := range map[string]func(*journal.Journal, string){
		"a corrupt entry": func(_ *journal.Journal, dir string) { overwrite(t, dir, key1, torn) },
		"a lease of another": func(j *journal.Journal, dir string) {
			must(t, os.Remove(filepath.Join(dir, "leases/file/f/net-a@c0ffee@net1")))
			put(t, j, key2, "f")
		},
	} {
		j, dir := open(t)
		put(t, j, key1, "f")
		spoil(j, dir)
		former, _ := j.Lock(t.Context(), key1, 0)
		must(t, os.WriteFile(filepath.Join(dir, "leases/spec"), nil, 0o600))
		entry := filepath.Join(dir, "attachments/net-a@c0ffee@net1")
		before, content := files(t, dir), difftest.Read(t, entry)
		difftest.Says(t, j.Put(&journal.Entry{Key: key1, CDI: journal.CDI{File: "s"}}, former), "leases/spec")
		former.Unlock()
		expectFiles(t, dir, before...)
		difftest.Same(t, what, difftest.Read(t, entry), content)
	}
}

// In practice only a power failure tears an entry.
func TestCorruptEntryDoesNotKeepItsFile(t *testing.T) {
	j, dir := open(t)
	for _, content := range []string{"", "null", "{}", "[]", `{"network": "net-a"`, "\x00\x00", `{"network": "b", "containerID": "c", "ifName": "d"}`,
		`{"format": 3, "network": "net-a", "containerID": "c0ffee", "ifName": "net1", "wrote": 1}`} {
		put(t, j, key1, "f")
		overwrite(t, dir, key1, content)
		e, err := j.Get(key1)
		difftest.Equal(t, []any{e, difftest.As[*store.CorruptError](t, err).Path}, []any{(*journal.Entry)(nil), filepath.Join(dir, "attachments/net-a@c0ffee@net1")})
		torn, err := j.Lock(t.Context(), key1, 0)
		difftest.As[*store.CorruptError](t, err)
		must(t, j.FillFromLeases(torn))
		difftest.Same(t, content+": locked, lost, and the file", []any{torn.Locked() != nil, torn.Lost(), torn.File}, []any{true, true, "f"})
		put(t, j, key2, "f") // possible because the first lease is stale
		must(t, j.Forget(torn), j.Forget(former(t, j, key2)))
		torn.Unlock()
	}
	link(t, "x", filepath.Join(dir, "attachments/net-a@c0ffee@net1")) // the journal writes none
	_, err := j.Get(key1)
	difftest.As[*store.CorruptError](t, err)
	e, err := j.Lock(t.Context(), key1, 0)
	difftest.Same(t, "locked", []any{e, err}, []any{(*journal.Entry)(nil), nil})
	expectFiles(t, dir)
}

// Damage of this boot cannot be told from the record alone: whichever part of it is lost, its pod may run.
func TestCorruptRecordOfThisBootKeepsDevice(t *testing.T) {
	vf := has("pci-vf", journal.Exclusive)
	for at, of := range map[string]struct {
		take func(*journal.Journal) error
		read func(*journal.Journal) error
	}{
		"attachments/net-a@c0ffee@net1": {
			func(j *journal.Journal) error {
				return j.Put(&journal.Entry{Key: key1, Pod: "p", Netns: "/proc/self/ns/net", Leases: vf}, nil)
			},
			func(j *journal.Journal) error { _, err := j.Get(key1); return err },
		},
		"claims/7d2f=net1": {
			func(j *journal.Journal) error { return j.Hold(claimOf("p", vf...)) },
			func(j *journal.Journal) error { _, err := j.Claim("7d2f=net1"); return err },
		},
	} {
		j, dir := open(t)
		must(t, of.take(j))
		path := filepath.Join(dir, at)
		whole := difftest.Read(t, path)
		asked := &journal.Entry{Key: key2, Pod: "q", Leases: vf}
		for n := range len(whole) - 1 {
			for _, content := range []string{whole[:n], whole[:n] + strings.Repeat("\x00", len(whole)-n), strings.Repeat("\x00", n+1) + whole[n+1:], whole[:n] + "\xff{" + whole[n:]} {
				must(t, os.WriteFile(path, []byte(content), 0o600))
				if !errors.As(of.read(j), new(*store.CorruptError)) {
					continue // nobody can tell
				}
				held := difftest.As[*journal.HeldError](t, j.Free(asked)).Holder
				if c := held.Claim; c == nil && held.Entry.Key != key1 || c != nil && c.FileName() != "7d2f=net1" {
					t.Errorf("%q: got %v", content, held)
				}
				ofEarlierBoot(t, path)
				must(t, j.Free(asked))
			}
		}
		must(t, os.WriteFile(path, nil, 0o600), os.Remove(filepath.Join(dir, "leases/device/pci-vf", filepath.Base(at))), j.Free(asked))
	}
}

// ofEarlierBoot sets the time of a file to an hour before the boot.
func ofEarlierBoot(t *testing.T, path string) {
	t.Helper()
	seconds, _, _ := strings.Cut(difftest.Read(t, "/proc/uptime"), ".")
	up, err := time.ParseDuration(seconds + "s")
	must(t, err)
	before := time.Now().Add(-up - time.Hour)
	must(t, os.Chtimes(path, before, before))
}

func TestTooLongNamesAreErrors(t *testing.T) {
	j, dir := open(t)
	long := journal.Key{Network: strings.Repeat("n", 184), ContainerID: strings.Repeat("c", 64), IfName: "net1"}
	must(t, j.Forget(put(t, j, long, "f")))
	long.Network += "n"
	for _, e := range []*journal.Entry{
		{Key: long, File: "f"}, {Key: key1, File: "f", SocketDir: "/" + strings.Repeat("d", 253)}, {Key: key1, File: strings.Repeat("f", 256)},
	} {
		difftest.As[*store.NameError](t, j.Put(e, nil))
		if err := j.Forget(e); err != nil { // the runtime still sends a DEL for it
			difftest.As[*store.NameError](t, err)
		}
	}
	expectFiles(t, dir)
}

func TestAllSortsByNetwork(t *testing.T) {
	j, dir := open(t)
	keys, err := j.All()
	must(t, err)
	difftest.Same(t, "in an empty journal", []any{len(keys), former(t, j, key1)}, []any{0, (*journal.Entry)(nil)})
	expectFiles(t, dir)
	other := journal.Key{Network: "net-a.b", ContainerID: "c0ffee", IfName: "net1"}
	for _, k := range []journal.Key{other, key2, key1} {
		put(t, j, k, "")
	}
	must(t, os.WriteFile(filepath.Join(dir, "attachments", "README"), nil, 0o600))
	for _, none := range [][]string{nil, {}} {
		keys, err = j.All(none...)
		must(t, err)
		difftest.Equal(t, keys, []journal.Key{other, key1, key2})
	}
	for container, want := range map[string][]journal.Key{"c0ffee": {other, key1}, "c0ff": nil, "net-a": nil} {
		got, err := j.All(container)
		must(t, err)
		difftest.Same(t, container, got, want)
	}
}

func TestBootIDIsTheKernels(t *testing.T) {
	const path = "/proc/sys/kernel/random/boot_id"
	id, err := journal.BootID()
	must(t, err)
	difftest.Equal(t, id+"\n", difftest.Read(t, path))
	linktest.Run(t, func(t *testing.T) { // a sandbox may have anything at this path
		file := t.TempDir() + "/id"
		longest := strings.Repeat("x", 64)
		for text, want := range map[string]string{"": "", longest: longest, longest + "y": "", "x\x00": ""} {
			must(t, os.WriteFile(file, []byte(text), 0o600), syscall.Mount(file, path, "", syscall.MS_BIND, ""))
			id, err := journal.BootID()
			must(t, syscall.Unmount(path, 0))
			difftest.Same(t, fmt.Sprintf("%q, %v", text, err), []any{id, err == nil}, []any{want, want != ""})
		}
		must(t, syscall.Mount("/proc/self/mem", path, "", syscall.MS_BIND, ""))
		_, err := journal.BootID()
		difftest.Is(t, err, syscall.EIO)
	})
}

func TestSameDetectsRewrittenEntry(t *testing.T) {
	j, _ := open(t)
	put(t, j, key1, "f")
	before := former(t, j, key1)
	difftest.Same(t, "an unchanged entry", former(t, j, key1).Same(before), true)
	record(t, j, &journal.Entry{Key: key1, File: "f", Time: time.Unix(1, 0)})
	difftest.Same(t, "a rewritten one, and none", []bool{former(t, j, key1).Same(before), before.Same(nil)}, []bool{false, false})
}

// A call keeps its entry locked until it ends, so that a concurrent call fails.
func TestEntryIsLockedForOneCall(t *testing.T) {
	j, dir := open(t)
	adding := &journal.Entry{Key: key1, File: "f"}
	must(t, j.Put(adding, nil))
	_, err := j.Lock(t.Context(), key1, 0) // as a DEL would
	difftest.As[*store.BusyError](t, err)
	changed := difftest.As[*journal.ConcurrentChangeError](t, j.Put(&journal.Entry{Key: key1}, nil))
	difftest.Equal(t, changed.Key, key1)
	complete := &journal.Entry{Key: key1, File: "f", Complete: true}
	must(t, j.Put(complete, adding))
	difftest.Same(t, "the lock has passed to the new entry", []bool{adding.Lost(), complete.Locked() != nil, complete.Lost()}, []bool{true, true, false})
	must(t, os.Remove(filepath.Join(dir, "attachments/net-a@c0ffee@net1"))) // like a program that ignores the lock
	difftest.As[*journal.ConcurrentChangeError](t, j.Put(&journal.Entry{Key: key1}, complete))
	complete.Unlock()
	must(t, j.Forget(complete))
	expectFiles(t, dir)
}

func link(t *testing.T, target, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(target, path))
}

func TestOfBootIsFalseOnlyForDifferentIDs(t *testing.T) {
	for ids, want := range map[[2]string]bool{{"a", "a"}: true, {"a", "b"}: false, {"", "b"}: true, {"a", ""}: true, {"", ""}: true} {
		difftest.Same(t, fmt.Sprintf("entry and boot %q", ids), (&journal.Entry{BootID: ids[0]}).OfBoot(ids[1]), want)
	}
}

// The clock may be set back between two ADDs, and entries of earlier builds have no uptime.
func TestLaterEntryIsThatOfLaterUptimeElseTime(t *testing.T) {
	entry := func(boot string, uptime time.Duration, second int64) *journal.Entry {
		return &journal.Entry{BootID: boot, Uptime: uptime, Time: time.Unix(second, 0)}
	}
	for first, second := range map[*journal.Entry]*journal.Entry{
		entry("a", 1, 9): entry("a", 2, 8), entry("a", 9, 1): entry("b", 1, 2), entry("a", 0, 1): entry("a", 1, 2), entry("a", 9, 1): entry("a", 0, 2),
	} {
		difftest.Same(t, fmt.Sprintf("%+v after %+v", second, first), []bool{second.After(first), first.After(second)}, []bool{true, false})
	}
	same := entry("a", 1, 1)
	difftest.Same(t, "after itself", same.After(same), false)
	difftest.Same(t, "path of no file", (&journal.Entry{Dir: "/d"}).Path(), "")
	socket := journal.Requested{SocketPath: "/s/sock"}
	for want, e := range map[string]journal.Entry{"": {}, "/d": {SocketDir: "/d", Requested: socket}, "/e": {SocketDir: "/e"}, "/s": {Requested: socket}} {
		difftest.Equal(t, e.HostSocketDir(), want)
	}
}
