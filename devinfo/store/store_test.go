package store_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
)

func TestReadOfAMissingFileOrDirectoryIsErrNotExist(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []*store.Dir{store.Open(dir), store.Open(dir + "/none/cni")} {
		if _, err := d.Read("net1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		if _, err := d.Info("net1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	}
	_, err := store.Open(dir).Read("net1")
	if want := dir + "/net1: read: no such file or directory"; err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestReadRefusesAllButRegularFilesAndDoesNotWaitForAFIFO(t *testing.T) {
	dir := t.TempDir()
	d := store.Open(dir)
	put(t, filepath.Join(dir, "real"), "secret")
	symlink(t, "real", filepath.Join(dir, "inside"))
	symlink(t, "/etc/passwd", filepath.Join(dir, "outside"))
	symlink(t, "nothing", filepath.Join(dir, "dangling"))
	mkdir(t, filepath.Join(dir, "sub"))
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"inside", "outside", "dangling", "sub", "fifo"} {
		done := make(chan error, 1)
		go func() { _, err := d.Read(name); done <- err }()
		select {
		case err := <-done:
			if err == nil || !strings.HasPrefix(err.Error(), d.Path(name)+": not a regular file (mode ") {
				t.Errorf("%s: got %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: Read blocks", name)
		}
	}
}

func TestFilesOverTheLimitAreNeitherReadNorWritten(t *testing.T) {
	const limit = 1 << 20
	d := store.Open(t.TempDir())
	data := make([]byte, limit+1)
	if err := d.Write("net1", data[:limit]); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Read("net1"); len(got) != limit || err != nil {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if err := d.Write("net1", data); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("Write: got %v", err)
	}
	if got, _ := d.Read("net1"); len(got) != limit {
		t.Errorf("the refused Write left %d bytes", len(got))
	}
	if err := os.Truncate(d.Path("net1"), 1<<30); err != nil { // sparse
		t.Fatal(err)
	}
	if _, err := d.Read("net1"); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("Read: got %v", err)
	}
}

func TestInfoOfEmptyOrCorruptContentIsACorruptErrorWithTheParsersWords(t *testing.T) {
	d := store.Open(t.TempDir())
	for content, want := range map[string]string{
		"":      "device-info is not JSON",
		`{"ty`:  "device-info is not JSON",
		"[]":    "device-info is a JSON array",
		"null":  "device-info is null",
		"\x00":  "device-info is not JSON",
		"{} {}": "device-info is not JSON",
	} {
		put(t, d.Path("net1"), content)
		info, err := d.Info("net1")
		var corrupt *store.CorruptError
		if info != nil || !errors.As(err, &corrupt) || corrupt.Path != d.Path("net1") ||
			!strings.HasPrefix(err.Error(), d.Path("net1")+": corrupt: "+want) {
			t.Errorf("%q: got %v, %v", content, info, err)
		}
	}
}

func TestInfoOfAnotherMajorVersionIsNotCorrupt(t *testing.T) {
	d := store.Open(t.TempDir())
	put(t, d.Path("net1"), `{"version": "2.0.0"}`)
	_, err := d.Info("net1")
	var version *devinfo.VersionError
	var corrupt *store.CorruptError
	if !errors.As(err, &version) || errors.As(err, &corrupt) {
		t.Errorf("got %v", err)
	}
}

func TestInfoReadsWhatWasWritten(t *testing.T) {
	d := store.Open(filepath.Join(t.TempDir(), "cni"))
	want := &devinfo.Info{Type: devinfo.TypePCI, Version: "1.1.0", PCI: &devinfo.PCI{Address: "0000:3b:00.2"}}
	if err := d.Write("net1", want.Encode()); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Info("net1"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestNamesAreSortedRegularFilesWithoutTemporaries(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a", ".a.devinfo", ".hidden"} {
		put(t, filepath.Join(dir, name), "x")
	}
	mkdir(t, filepath.Join(dir, "sub"))
	symlink(t, "a", filepath.Join(dir, "link"))
	names, err := store.Open(dir).Names()
	if want := []string{"a", "b"}; err != nil || !reflect.DeepEqual(names, want) {
		t.Errorf("got %q, %v", names, err)
	}
	names, err = store.Open(dir + "/none").Names()
	if len(names) != 0 || err != nil {
		t.Errorf("absent directory: got %q, %v", names, err)
	}
}

func TestRemoveOfWhatIsGoneSucceeds(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []*store.Dir{store.Open(dir), store.Open(dir + "/none/cni")} {
		if err := d.Remove("net1"); err != nil {
			t.Error(err)
		}
	}
	if got := entries(t, dir); len(got) != 0 {
		t.Errorf("Remove made %v", got)
	}
}

func TestRemoveTakesTheLeftoverTemporaryFileAlong(t *testing.T) {
	d := store.Open(t.TempDir())
	for _, names := range [][]string{{"net1", ".net1.devinfo"}, {".net1.devinfo"}} {
		for _, name := range names {
			put(t, d.Path(name), "x")
		}
		if err := d.Remove("net1"); err != nil {
			t.Fatal(err)
		}
		if got := entries(t, d.Path("")); len(got) != 0 {
			t.Errorf("%v: left %v", names, got)
		}
	}
}

func TestRemoveLeavesTheTemporaryFileOfALivingWriterAlone(t *testing.T) {
	d := store.Open(t.TempDir())
	lockTemporary(t, d, "net1")
	if err := d.Remove("net1"); err != nil {
		t.Error(err)
	}
	if got := entries(t, d.Path("")); !reflect.DeepEqual(got, []string{".net1.devinfo"}) {
		t.Errorf("left %v", got)
	}
}

func TestRemoveRemovesALinkAndNotItsTarget(t *testing.T) {
	parent := t.TempDir()
	d := store.Open(filepath.Join(parent, "cni"))
	mkdir(t, d.Path(""))
	put(t, parent+"/victim", "v")
	for _, name := range []string{"net1", ".net1.devinfo"} {
		symlink(t, parent+"/victim", d.Path(name))
	}
	if err := d.Remove("net1"); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, d.Path("")); len(got) != 0 {
		t.Errorf("left %v", got)
	}
	if got := get(t, parent+"/victim"); got != "v" {
		t.Errorf("the target holds %q", got)
	}
}

func TestRemoveRefusesADirectory(t *testing.T) {
	d := store.Open(t.TempDir())
	mkdir(t, d.Path("sub"))
	if err := d.Remove("sub"); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("got %v", err)
	}
	if got := entries(t, d.Path("")); len(got) != 1 {
		t.Error("the directory is gone")
	}
}

// Helpers.

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func resolve(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func expect(t *testing.T, d *store.Dir, name, want string) {
	t.Helper()
	if got, err := d.Read(name); string(got) != want || err != nil {
		t.Errorf("%s: got %.40q, %v, want %.40q", name, got, err, want)
	}
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	stat, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return stat.Mode().Perm()
}
