package journal_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
)

const boot = "5d0a2b6c-boot"

var (
	key1 = journal.Key{Network: "net-a", ContainerID: "c0ffee", IfName: "net1"}
	key2 = journal.Key{Network: "net-a", ContainerID: "decade", IfName: "net1"}
)

func open(t *testing.T) (*journal.Journal, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "devinfo")
	t.Cleanup(func() { // no method leaves a file open, and locked, but that of an entry
		files, _ := filepath.Glob("/proc/self/fd/*")
		for _, f := range files {
			if path, _ := os.Readlink(f); strings.HasPrefix(path, dir+"/") {
				t.Errorf("%s is still open", path)
			}
		}
	})
	return journal.Open(dir, boot), dir
}

func release(j *journal.Journal, record string) error {
	return j.ReleaseIf(record, func() error { return nil })
}

var must = difftest.Must

// former returns the entry on disk, or nil if it is missing or corrupt.
func former(t *testing.T, j *journal.Journal, k journal.Key) *journal.Entry {
	t.Helper()
	e, err := j.Get(k)
	if err != nil {
		difftest.As[*store.CorruptError](t, err)
	}
	return e
}

// put records an attachment with a device-info file, in place of its previous entry.
func put(t *testing.T, j *journal.Journal, k journal.Key, file string) *journal.Entry {
	t.Helper()
	return record(t, j, &journal.Entry{Key: k, File: file})
}

// record writes an entry as ADD does, in place of the previous entry.
func record(t *testing.T, j *journal.Journal, e *journal.Entry) *journal.Entry {
	t.Helper()
	must(t, tryRecord(t, j, e))
	return e
}

func tryRecord(t *testing.T, j *journal.Journal, e *journal.Entry) error {
	t.Helper()
	former, err := j.Lock(t.Context(), e.Key, 0)
	must(t, err)
	defer former.Unlock()
	err = j.Put(e, former)
	e.Unlock()
	return err
}

// refuse records e, which must fail, and returns the error with the holder.
func refuse(t *testing.T, j *journal.Journal, e *journal.Entry) *journal.HeldError {
	t.Helper()
	return difftest.As[*journal.HeldError](t, tryRecord(t, j, e))
}

// files returns all paths in the state directory, temporary files included. The target of a link follows its
// path.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var got []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch depth := strings.Count(name, "/"); {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case depth == 0, strings.HasPrefix(name, "leases/") && depth == 1: // attachments, claims, leases and the directories of kinds stay
			return nil
		}
		if target, err := os.Readlink(path); err == nil {
			name += " -> " + target
		}
		if e.IsDir() {
			name += "/"
		}
		got = append(got, name)
		return nil
	})
	must(t, err)
	return got
}

func expectFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	difftest.Same(t, "in the state directory", files(t, dir), want)
}

func overwrite(t *testing.T, dir string, k journal.Key, content string) {
	t.Helper()
	path := filepath.Join(dir, "attachments", strings.ReplaceAll(k.String(), "/", "@"))
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestChangedDetectsWritesAndRemovals(t *testing.T) {
	j, dir := open(t)
	at, err := j.Changed()
	difftest.Same(t, "without a journal", []any{at, err}, []any{time.Time{}, nil})
	long := time.Date(2000, 1, 2, 3, 4, 5, 0, time.UTC)
	for what, do := range map[string]func(){"written": func() { put(t, j, key1, "f") }, "removed": func() { must(t, j.Forget(&journal.Entry{Key: key1, File: "f"})) }} {
		put(t, j, key1, "f")
		must(t, os.Chtimes(filepath.Join(dir, "attachments"), long, long))
		before, err := j.Changed()
		do()
		after, again := j.Changed()
		must(t, err, again)
		difftest.Same(t, what, []bool{before.Equal(long), after.Equal(long)}, []bool{true, false})
	}
}

func TestEnsureDirCreatesStateDirectory(t *testing.T) {
	j, dir := open(t)
	for range 2 {
		must(t, j.EnsureDir())
		if stat, err := os.Stat(dir); err != nil || stat.Mode().Perm() != 0o755 {
			t.Errorf("%v, %v", stat, err)
		}
	}
	must(t, os.Remove(filepath.Join(dir, "attachments")))
	must(t, j.EnsureDir()) // the directory exists but is empty, as before the first ADD
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, path := range []string{file, file + "/state", "/proc/none/state"} {
		difftest.Says(t, journal.Open(path, boot).EnsureDir(), "stateDir: "+path+" does not exist and cannot be created: ")
	}
}

// In an entry of a newer format, keys may be missing or have other types.
func TestEntryOfNewerFormatStays(t *testing.T) {
	for _, content := range []string{
		`{"format":99,"network":"net-a","containerID":"c0ffee","ifName":"net1","bootID":"` + boot + `","file":"f"}`,
		`{"format":99}`,
		`{"network":["net-a"],"time":7,"before":{},"former":"x","requested":[],"netns":1,"format":99,"delegates":{"a":1}}`,
		`{"time":"yesterday","FORMAT":99}`,
	} {
		j, dir := open(t)
		record(t, j, everything(key1, "p"))
		overwrite(t, dir, key1, content)
		before := files(t, dir)
		_, get := j.Get(key1)
		_, lock := j.Lock(t.Context(), key1, 0)
		for method, err := range map[string]error{"Get": get, "Lock": lock} {
			path := filepath.Join(dir, "attachments/net-a@c0ffee@net1")
			difftest.Same(t, method, *difftest.As[*journal.FormatError](t, err), journal.FormatError{Path: path, Format: 99})
			difftest.Same(t, method, err.Error(), path+": has format 99, but this devinfo reads formats up to 3")
		}
		must(t, j.Sweep(func(path string) { t.Errorf("swept %s", path) }))
		difftest.As[*journal.ConcurrentChangeError](t, j.Put(&journal.Entry{Key: key1, File: "f"}, nil))
		expectOwner(t, j, "f", &key1)
		for _, e := range []*journal.Entry{{File: "f"}, {CDI: journal.CDI{File: "s"}}, {SocketDir: "/d", Pod: "p"}, {Leases: has("pci-vf", journal.Shared)}} {
			e.Key = key2
			difftest.Equal(t, refuse(t, j, e).Holder.Entry.Key, key1)
		}
		expectFiles(t, dir, before...)
		difftest.Equal(t, difftest.Read(t, filepath.Join(dir, "attachments/net-a@c0ffee@net1")), content)
		all, err := j.All()
		must(t, err)
		difftest.Equal(t, all, []journal.Key{key1})
	}
}

func TestNewerReturnsPodNames(t *testing.T) {
	dir := t.TempDir()
	j := journal.Open(dir, boot)
	newer := func(than int, want ...string) {
		t.Helper()
		got, err := j.Newer(than)
		must(t, err)
		difftest.Equal(t, got, want)
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
		newer(journal.Format-1, want, "shop/web")
		newer(9)
	}
	overwrite(t, dir, key2, `torn`)
	newer(journal.Format)
}

// readers are the methods that read records, with what each has read.
func readers(t *testing.T, c *journal.Claim) map[string]func(j *journal.Journal) (any, error) {
	nothing := func() error { return errors.New("called") }
	return map[string]func(j *journal.Journal) (any, error){
		"Get":            func(j *journal.Journal) (any, error) { return j.Get(key1) },
		"Lock":           func(j *journal.Journal) (any, error) { return j.Lock(t.Context(), key1, 0) },
		"Put":            func(j *journal.Journal) (any, error) { return nil, j.Put(&journal.Entry{Key: key2}, nil) },
		"All":            func(j *journal.Journal) (any, error) { return j.All() },
		"Newer":          func(j *journal.Journal) (any, error) { return j.Newer(1) },
		"Unrecorded":     func(j *journal.Journal) (any, error) { return nil, j.Unrecorded(key2, nothing) },
		"Free":           func(j *journal.Journal) (any, error) { return nil, j.Free(&journal.Entry{Key: key2}) },
		"Holders":        func(j *journal.Journal) (any, error) { return j.Holders(journal.OfDevice, "pci-none") },
		"Owner":          func(j *journal.Journal) (any, error) { return j.Owner(journal.OfFile, "f") },
		"Leased":         func(j *journal.Journal) (any, error) { return j.Leased(journal.OfDevice) },
		"FillFromLeases": func(j *journal.Journal) (any, error) { return nil, j.FillFromLeases(&journal.Entry{Key: key1}) },
		"Claim":          func(j *journal.Journal) (any, error) { return j.Claim("u1") },
		"Claims":         func(j *journal.Journal) (any, error) { return j.Claims() },
		"Hold":           func(j *journal.Journal) (any, error) { return nil, j.Hold(c) },
		"ReleaseIf":      func(j *journal.Journal) (any, error) { return nil, j.ReleaseIf("u1", nothing) },
		"Sweep":          func(j *journal.Journal) (any, error) { return nil, j.Sweep(func(string) {}) },
	}
}

// Root runs and removes what records name, so no method reads those that others can write. Those that are not in the table
// read no record, or only ask for a link of a record that the caller has read.
func TestNoMethodReadsWhatOthersCanWrite(t *testing.T) {
	e, c := &journal.Entry{Key: key1, File: "f", Leases: has("pci-vf", journal.Exclusive)}, &journal.Claim{UID: "u1", Leases: has("pci-vf2", journal.Exclusive)}
	nothing := func() error { return nil }
	readers := readers(t, c)
	others := strings.Fields("Alone Cache Changed Devices EnsureDir Forget Has Holding Holds Ignored Own Stale Writable")
	for m := range reflect.TypeFor[*journal.Journal]().Methods() {
		if readers[m.Name] == nil && !slices.Contains(others, m.Name) {
			t.Errorf("%s is in neither list", m.Name)
		}
	}
	for _, name := range []string{"..", "", "attachments", "claims", "libcni", "leases", "leases/device", "leases/file", "leases/spec", "leases/socket"} {
		dir := t.TempDir() + "/above/state"
		at := filepath.Join(dir, name)
		must(t, journal.Open(dir, "boot").Put(e, nil), journal.Open(dir, "boot").Hold(c), os.MkdirAll(at, 0o700), os.WriteFile(dir+"/attachments/.x.devinfo", nil, 0o600), os.Chmod(at, 0o777))
		before := files(t, dir)
		for method, read := range readers {
			if _, err := read(journal.Open(dir, "boot")); !errors.As(err, new(*journal.ExposedError)) || !strings.Contains(err.Error(), "chown it to root") {
				t.Errorf("%s with %q writable by others: %v", method, name, err)
			}
			shown := journal.Open(dir, "boot")
			shown.Show = true
			got, err := shown.Get(key1)
			must(t, err)
			difftest.Same(t, method+", to show it", got != nil, true)
		}
		expectFiles(t, dir, before...)
		j := journal.Open(dir, "boot")
		must(t, os.Chmod(at, 0o700), j.Sweep(func(string) {}), j.ReleaseIf("u1", nothing), os.Chmod(at, 0o777))
		_, err := j.Get(key1) // as a look for each record would take long
		must(t, err)
		for _, method := range []string{"Hold", "ReleaseIf"} { // cni-dra-driver has one Journal as long as it runs
			must(t, os.WriteFile(filepath.Join(dir, "claims/u1"), nil, 0o600))
			_, err := readers[method](j)
			difftest.As[*journal.ExposedError](t, err)
		}
		e.Unlock()
	}
}

// Whoever can write to the journal could else name records of the driver.
func TestIgnoredJournalNamesNoRecordsOfDriver(t *testing.T) {
	j, dir := open(t)
	must(t, os.MkdirAll(dir, 0o700), os.Symlink("/tmp/others", filepath.Join(dir, "driver")))
	difftest.Equal(t, j.ClaimDir(), "/tmp/others")
	difftest.Equal(t, j.Ignored().ClaimDir(), state.DefaultDir)
}

func TestInvalidKeyIsRefusedAndErrorOfCallerReturned(t *testing.T) {
	j, _ := open(t)
	put(t, j, key2, "f")
	failing := func() error { return fs.ErrClosed }
	for _, k := range []journal.Key{{Network: "net/a", ContainerID: "c", IfName: "net1"}, {Network: "n n", ContainerID: "c", IfName: "i"}, {Network: "n", ContainerID: "c c", IfName: "i"}, {Network: "n", ContainerID: "c"}} {
		e := everything(k, "p")
		_, get := j.Get(k)
		for _, err := range []error{get, j.Put(e, nil), j.Free(e), j.Forget(e), k.Check()} {
			difftest.Says(t, err, "must be network/containerID/ifName")
		}
		difftest.Is(t, j.Unrecorded(k, failing), fs.ErrClosed) // such an ADD has failed
		difftest.Equal(t, filepath.Base(j.Cache(k)), "none")
	}
	difftest.Is(t, j.Unrecorded(key1, failing), fs.ErrClosed)
	difftest.Says(t, j.Put(&journal.Entry{Key: key1, Info: []byte("{")}, nil), "journal entry of net-a/c0ffee/net1: ")
	must(t, j.Unrecorded(key2, failing))
}
