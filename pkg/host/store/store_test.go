package store_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/host/store"
)

func TestReadOfMissingFileOrDirectoryIsErrNotExist(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []*store.Dir{store.Open(dir), store.Open(dir + "/none/cni")} {
		if _, err := d.Info("net1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	}
	_, err := store.Open(dir).Read("net1")
	if want := dir + "/net1: read: no such file or directory"; err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestReadRefusesIrregularFilesWithoutBlocking(t *testing.T) {
	dir := t.TempDir()
	d := store.Open(dir)
	put(t, filepath.Join(dir, "real"), "secret")
	must(t, os.Symlink("real", filepath.Join(dir, "inside")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "outside")))
	must(t, os.Symlink("nothing", filepath.Join(dir, "dangling")))
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	for _, name := range []string{"inside", "outside", "dangling", "sub", "fifo"} {
		if _, err := d.Read(name); err == nil || !strings.HasPrefix(err.Error(), d.Path(name)+": not a regular file (mode ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestFilesOverTheLimitAreNeitherReadNorWritten(t *testing.T) {
	const limit = 1 << 20
	d := store.Open(t.TempDir())
	data := make([]byte, limit+1)
	must(t, d.Write("net1", data[:limit]))
	if got, err := d.Read("net1"); len(got) != limit || err != nil {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if err := d.Write("net1", data); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("Write: got %v", err)
	}
	if got, _ := d.Read("net1"); len(got) != limit {
		t.Errorf("the refused Write left %d bytes", len(got))
	}
	must(t, os.Truncate(d.Path("net1"), 1<<30)) // a sparse file, so the test writes no data
	if _, err := d.Read("net1"); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("Read: got %v", err)
	}
}

func TestInvalidInfoIsCorruptErrorExceptForeignMajorVersion(t *testing.T) {
	d := store.Open(t.TempDir())
	for content, want := range map[string]string{
		"":                     "corrupt: device-info is not JSON",
		`{"ty`:                 "corrupt: device-info is not JSON",
		"[]":                   "corrupt: device-info is a JSON array",
		"null":                 "corrupt: device-info is null",
		`{"version": "2.0.0"}`: `device-info version "2.0.0" is not supported`,
	} {
		put(t, d.Path("net1"), content)
		info, err := d.Info("net1")
		var corrupt *store.CorruptError
		if info != nil || err == nil || !strings.HasPrefix(err.Error(), d.Path("net1")+": "+want) ||
			errors.As(err, &corrupt) == errors.As(err, new(*devinfo.VersionError)) ||
			corrupt != nil && corrupt.Path != d.Path("net1") {
			t.Errorf("%q: got %v, %#v", content, info, err)
		}
	}
}

func TestInfoReadsWrittenFile(t *testing.T) {
	d := store.Open(filepath.Join(t.TempDir(), "cni"))
	want := &devinfo.Info{Type: devinfo.TypePCI, Version: "1.1.0", PCI: &devinfo.PCI{Address: "0000:3b:00.2"}}
	must(t, d.Write("net1", want.Encode()))
	if got, err := d.Info("net1"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestNamesListsRegularFilesSortedWithoutTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a", ".a.devinfo", ".hidden"} {
		put(t, filepath.Join(dir, name), "x")
	}
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	must(t, os.Symlink("a", filepath.Join(dir, "link")))
	names, err := store.Open(dir).Names()
	if want := []string{"a", "b"}; err != nil || !reflect.DeepEqual(names, want) {
		t.Errorf("got %q, %v", names, err)
	}
	names, err = store.Open(dir + "/none").Names()
	if len(names) != 0 || err != nil {
		t.Errorf("absent directory: got %q, %v", names, err)
	}
}

// Each case lists the directory's content before and after a Write, Remove or Sweep.
func TestDirectoryContentAfterWriteRemoveAndSweep(t *testing.T) {
	parent := t.TempDir()
	put(t, parent+"/victim", "v")
	must(t, os.Chmod(parent+"/victim", 0o600))
	write := func(d *store.Dir) error { return d.Write("net1", []byte("new")) }
	remove := func(d *store.Dir) error { return d.Remove("net1") }
	sweep := func(d *store.Dir) error { return d.Sweep(func(string) {}) }
	longest := strings.Repeat("a", 255)
	for n, c := range []struct {
		what   string
		act    func(*store.Dir) error
		before map[string]string // content, or "-> target of a symbolic link", "= file of a hard link", "dir", "fifo", "locked"
		after  map[string]string // nil: the directory does not exist
		err    error
	}{
		{"write", write, nil, map[string]string{"net1": "new"}, nil},
		{"write over a longer file", write, map[string]string{"net1": "a longer first content"}, map[string]string{"net1": "new"}, nil},
		{"write over a link to another file", write, map[string]string{"net1": "-> other", "other": "o", ".net1.devinfo": "-> other"}, map[string]string{"net1": "new", "other": "o"}, nil},
		{"write over a link to a file outside", write, map[string]string{"net1": "-> ../victim", ".net1.devinfo": "-> ../victim"}, map[string]string{"net1": "new"}, nil},
		{"write over an absolute link", write, map[string]string{"net1": "-> " + parent + "/victim", ".net1.devinfo": "-> " + parent + "/victim"}, map[string]string{"net1": "new"}, nil},
		{"write over a dangling link", write, map[string]string{"net1": "-> not-there", ".net1.devinfo": "-> not-there"}, map[string]string{"net1": "new"}, nil},
		{"write reuses the temporary file of a killed writer", write, map[string]string{".net1.devinfo": "half of a much longer content"}, map[string]string{"net1": "new"}, nil},
		{"write replaces a FIFO", write, map[string]string{".net1.devinfo": "fifo"}, map[string]string{"net1": "new"}, nil},
		// If fs.protected_hardlinks is 0, a user who may create names in the directory can link another user's
		// file there.
		{"write with a hard link as temporary file", write, map[string]string{".net1.devinfo": "= ../victim"}, map[string]string{"net1": "new"}, nil},
		{"remove a hard link", remove, map[string]string{".net1.devinfo": "= ../victim"}, map[string]string{}, nil},
		{"sweep a hard link", sweep, map[string]string{".net1.devinfo": "= ../victim"}, map[string]string{}, nil},
		{"write over a directory", write, map[string]string{"net1": "dir"}, map[string]string{"net1": "dir"}, syscall.EEXIST},
		{"remove a missing file", remove, map[string]string{}, map[string]string{}, nil},
		{"remove in a missing directory", remove, nil, nil, nil},
		{"remove a file and the temporary file of a killed writer", remove, map[string]string{"net1": "x", ".net1.devinfo": "x"}, map[string]string{}, nil},
		{"remove the temporary file of a killed writer", remove, map[string]string{".net1.devinfo": "x"}, map[string]string{}, nil},
		{"remove keeps the temporary file of a running writer", remove, map[string]string{".net1.devinfo": "locked"}, map[string]string{".net1.devinfo": ""}, nil},
		{"remove a link and not its target", remove, map[string]string{"net1": "-> ../victim", ".net1.devinfo": "-> ../victim"}, map[string]string{}, nil},
		{"remove a file of any name", func(d *store.Dir) error { return d.Remove("net1\n\xff") }, map[string]string{"net1\n\xff": "x"}, map[string]string{}, nil},
		{"write under the longest name", func(d *store.Dir) error { return d.Write(longest, nil) }, nil, map[string]string{longest: ""}, nil},
		{"remove refuses a directory", remove, map[string]string{"net1": "dir"}, map[string]string{"net1": "dir"}, syscall.EISDIR},
	} {
		d := store.Open(fmt.Sprint(parent, "/", n))
		for name, content := range c.before {
			must(t, os.MkdirAll(d.Path(""), 0o755))
			target, isLink := strings.CutPrefix(content, "-> ")
			file, isHard := strings.CutPrefix(content, "= ")
			switch {
			case isLink:
				must(t, os.Symlink(target, d.Path(name)))
			case isHard:
				must(t, os.Link(d.Path(file), d.Path(name)))
			case content == "dir":
				must(t, os.MkdirAll(d.Path(name), 0o755))
			case content == "fifo":
				must(t, syscall.Mkfifo(d.Path(name), 0o600))
			case content == "locked":
				lockTemporary(t, d, "net1")
			default:
				put(t, d.Path(name), content)
			}
		}
		if c.before != nil {
			must(t, os.MkdirAll(d.Path(""), 0o755))
		}
		if err := c.act(d); !errors.Is(err, c.err) {
			t.Errorf("%s: got %v", c.what, err)
		}
		if got := content(t, d.Path("")); !maps.Equal(got, c.after) || (got == nil) != (c.after == nil) {
			t.Errorf("%s: left %q", c.what, got)
		}
	}
	if got := get(t, parent+"/victim"); got != "v" || mode(t, parent+"/victim") != 0o600 {
		t.Errorf("the file beside the directory holds %q, and has mode %v", got, mode(t, parent+"/victim"))
	}
}

// content returns the content of the files in a directory, or nil if the directory does not exist.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	must(t, err)
	all := map[string]string{}
	for _, e := range list {
		if all[e.Name()] = "dir"; !e.IsDir() {
			all[e.Name()] = get(t, filepath.Join(dir, e.Name()))
		}
	}
	return all
}

func put(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

func get(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func expectEntries(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := entries(t, dir); !slices.Equal(got, want) {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
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
	must(t, err)
	return stat.Mode().Perm()
}
