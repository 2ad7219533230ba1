package safefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/safefile"
)

// both returns a plain and a durable directory, neither of which exists.
func both(t *testing.T) map[string]*safefile.Dir {
	t.Helper()
	dir := t.TempDir()
	return map[string]*safefile.Dir{"plain": safefile.Open(dir + "/plain/state"), "durable": safefile.OpenDurable(dir + "/durable/state")}
}

const noDirectory = "(no directory)"

func entries(t *testing.T, d *safefile.Dir) []string {
	t.Helper()
	list, err := os.ReadDir(d.Path(""))
	if errors.Is(err, fs.ErrNotExist) {
		return []string{noDirectory}
	}
	must(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func expectEntries(t *testing.T, d *safefile.Dir, want ...string) {
	t.Helper()
	if got := entries(t, d); !reflect.DeepEqual(got, want) {
		t.Errorf("the directory holds %q, want %q", got, want)
	}
}

func expect(t *testing.T, d *safefile.Dir, name, want string) {
	t.Helper()
	if got, err := d.Read(name); err != nil || string(got) != want {
		t.Errorf("%s: got %.40q, %v, want %.40q", name, got, err, want)
	}
}

var must = difftest.Must

func TestWriteReplacesAndRemoveLeavesNothing(t *testing.T) {
	for kind, d := range both(t) {
		t.Run(kind, func(t *testing.T) {
			if _, err := d.Read("a"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("before: got %v", err)
			}
			must(t, d.Remove("a"), d.Sweep(nil))
			expectEntries(t, d, noDirectory)
			for _, content := range []string{"a longer first content", "short", ""} {
				must(t, d.Write("a", []byte(content)))
				expect(t, d, "a", content)
			}
			must(t, d.Link("b", "a"))
			if err := d.Link("b", "c"); !errors.Is(err, fs.ErrExist) {
				t.Errorf("a second link: got %v", err)
			}
			if target, err := os.Readlink(d.Path("b")); target != "a" || err != nil {
				t.Errorf("got %q, %v", target, err)
			}
			if names, err := d.Names(); !reflect.DeepEqual(names, []string{"a"}) || err != nil {
				t.Errorf("names: got %q, %v", names, err)
			}
			must(t, d.Remove("a"), d.Remove("a"))
			if target, err := os.Readlink(d.Path("b")); target != "a" || err != nil {
				t.Errorf("the link of a file that is gone: got %q, %v", target, err)
			}
			must(t, d.Remove("b"), d.Remove("b"))
			expectEntries(t, d)
		})
	}
}

func TestModesDoNotDependOnUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		top := t.TempDir()
		old := syscall.Umask(umask)
		err := safefile.Open(top+"/a/b/state").Write("file", nil)
		syscall.Umask(old)
		must(t, err)
		for path, want := range map[string]fs.FileMode{"/a": 0o755, "/a/b": 0o755, "/a/b/state": 0o700, "/a/b/state/file": 0o600} {
			expectMode(t, top+path, want)
		}
		must(t, os.Chmod(top, 0o750), safefile.Open(top).Make()) // Make keeps the mode of an existing directory
		expectMode(t, top, 0o750)
	}
}

func expectMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	if stat, err := os.Stat(path); err != nil || stat.Mode().Perm() != want {
		t.Errorf("%s: got %v, %v, want %v", path, stat, err, want)
	}
}

func TestMethodsRejectBadNames(t *testing.T) {
	d := safefile.Open(t.TempDir() + "/state")
	for _, name := range []string{"", "..", "../a", "/etc/passwd"} { // as in atomicfile.CheckName
		_, read := d.Read(name)
		for method, err := range map[string]error{"Read": read, "Write": d.Write(name, nil),
			"Link": d.Link(name, "a"), "Remove": d.Remove(name)} {
			var bad *store.NameError
			if !errors.As(err, &bad) || bad.Name != name {
				t.Errorf("%s(%.20q): got %v", method, name, err)
			}
		}
	}
	expectEntries(t, safefile.Open(filepath.Dir(d.Path(""))))
}

func TestRelativeDirectoryIsAnError(t *testing.T) {
	t.Chdir(t.TempDir())
	d := safefile.Open("state")
	_, read := d.Read("a")
	for method, err := range map[string]error{"Read": read, "Write": d.Write("a", nil), "Remove": d.Remove("a"), "Make": d.Make()} {
		if err == nil || err.Error() != `directory "state": must be an absolute path` {
			t.Errorf("%s: got %v", method, err)
		}
	}
	expectEntries(t, d, noDirectory)
}

func TestTooLargeFileIsAnError(t *testing.T) {
	const limit = 64 << 20
	d := safefile.Open(t.TempDir())
	if err := d.Write("a", make([]byte, limit+1)); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("Write: got %v", err)
	}
	must(t, d.Write("a", nil), os.Truncate(d.Path("a"), limit)) // a sparse file
	if got, err := d.Read("a"); len(got) != limit || err != nil {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	must(t, os.Truncate(d.Path("a"), limit+1))
	if _, err := d.Read("a"); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("Read: got %v", err)
	}
	expectEntries(t, d, "a")
}

// The methods must not follow a link or block on a FIFO.
func TestWriteReplacesIrregularFile(t *testing.T) {
	parent := t.TempDir()
	d := safefile.Open(parent + "/state")
	must(t, d.Make(), os.WriteFile(parent+"/victim", []byte("v"), 0o600))
	must(t, d.Link("link", "../victim"), d.Link("dangling", "../nothing"), syscall.Mkfifo(d.Path("fifo"), 0o600))
	for _, name := range []string{"link", "dangling", "fifo"} {
		if got, err := d.Read(name); err == nil {
			t.Errorf("%s: read %q", name, got)
		}
		must(t, d.Write(name, []byte("new")))
		expect(t, d, name, "new")
	}
	must(t, os.Mkdir(d.Path("dir"), 0o700))
	for method, err := range map[string]error{"Read": second(d.Read("dir")), "Write": d.Write("dir", nil)} {
		if err == nil {
			t.Errorf("%s of a directory: no error", method)
		}
	}
	must(t, os.Symlink("../victim", d.Path(".link.devinfo")), d.Write("link", []byte("x")))
	expect(t, d, "link", "x")
	must(t, syscall.Mkfifo(d.Path(".fifo.devinfo"), 0o600), d.Remove("fifo"))
	expectEntries(t, d, "dangling", "dir", "link")
	if got, err := os.ReadFile(parent + "/victim"); string(got) != "v" || err != nil {
		t.Errorf("the link's target: got %q, %v", got, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestImpossibleDirectoryIsEmptyForReaders(t *testing.T) {
	top := t.TempDir()
	must(t, os.WriteFile(top+"/file", nil, 0o600), os.Symlink("nothing", top+"/dangling"))
	for _, path := range []string{"/file", "/file/sub", "/dangling", "/dangling/sub"} {
		for kind, d := range map[string]*safefile.Dir{"plain": safefile.Open(top + path), "durable": safefile.OpenDurable(top + path)} {
			if err := d.Write("a", nil); err == nil {
				t.Errorf("%s: Write: no error", path)
			}
			if err := d.Link("a", "b"); err == nil {
				t.Errorf("%s: Link: no error", path)
			}
			_, entries := d.Entries()
			if err := errors.Join(entries, d.Remove("a"), d.Sweep(nil)); err != nil {
				t.Errorf("%s, %s: %v", path, kind, err)
			}
			if _, err := d.Read("a"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s, %s: got %v", path, kind, err)
			}
		}
	}
}
