package store_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
)

// kinds are the kinds of directories.
var kinds = map[string]func(dir string) *store.Dir{"open": store.Open, "private": store.Private, "durable": store.Durable}

func TestReadRefusesIrregularFilesWithoutBlocking(t *testing.T) {
	dir := t.TempDir()
	difftest.Write(t, filepath.Join(dir, "real"), "secret", 0o644)
	for link, target := range map[string]string{"inside": "real", "outside": "/etc/passwd", "dangling": "nothing", "loop": "loop"} {
		difftest.Must(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	difftest.Must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755), syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	for name, want := range map[string]error{"inside": nil, "dangling": fs.ErrNotExist, "fifo": store.ErrNotRegular} {
		data, err := store.ReadFile(filepath.Join(dir, name), 1<<20) // follows links
		difftest.Is(t, err, want)
		difftest.Same(t, name, string(data) == "secret", want == nil)
	}
	_, err := store.ReadFile("/proc/self/mem", 1<<20) // whose first byte cannot be read
	difftest.Is(t, err, syscall.EIO)
	for kind, open := range kinds {
		for _, name := range []string{"inside", "outside", "dangling", "sub", "fifo"} {
			if _, err := open(dir).Read(name); err == nil || !strings.HasPrefix(err.Error(), filepath.Join(dir, name)+": not a regular file (mode ") {
				t.Errorf("%s: %s: got %v", kind, name, err)
			}
		}
		_, err := open(filepath.Join(dir, "loop")).Read("file") // unknown, and not another program's file
		difftest.Is(t, err, syscall.ELOOP)
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
		difftest.Write(t, d.Path("net1"), content, 0o644)
		info, err := d.Info("net1")
		var corrupt *store.CorruptError
		if info != nil || err == nil || !strings.HasPrefix(err.Error(), d.Path("net1")+": "+want) ||
			errors.As(err, &corrupt) == errors.As(err, new(*devinfo.VersionError)) ||
			corrupt != nil && corrupt.Path != d.Path("net1") {
			t.Errorf("%q: got %v, %#v", content, info, err)
		}
	}
	_, err := d.Info("none")
	difftest.Is(t, err, fs.ErrNotExist)
	difftest.Write(t, d.Path("net1"), `{"type": "pci", "version": "1.1.0", "pci": {}}`, 0o644)
	_, err = d.Info("net1")
	difftest.Same(t, "violations", len(difftest.As[*devinfo.InvalidError](t, err).Violations), 1)
}

// Each case lists the directory's content before and after a Write, Remove or Sweep.
func TestDirectoryContentAfterWriteRemoveAndSweep(t *testing.T) {
	parent := t.TempDir()
	difftest.Write(t, parent+"/victim", "v", 0o644)
	difftest.Must(t, os.Chmod(parent+"/victim", 0o600))
	write := func(d *store.Dir) error { return d.Write("net1", []byte("new")) }
	remove := func(d *store.Dir) error { return d.Remove("net1") }
	sweep := func(d *store.Dir) error { return d.Sweep(func(string) {}) }
	longest := strings.Repeat("a", 255)
	cases := []struct {
		what   string
		act    func(*store.Dir) error
		before map[string]string // content, or "-> target of a symbolic link", "= file of a hard link", "dir", "full", "fifo", "locked"
		after  map[string]string // nil: the directory does not exist
		err    error
	}{
		{"write", write, nil, map[string]string{"net1": "new"}, nil},
		{"write over a longer file", write, map[string]string{"net1": "a longer first content"}, map[string]string{"net1": "new"}, nil},
		{"write over a link to a file outside", write, map[string]string{"net1": "-> ../victim", ".net1.devinfo": "-> ../victim"}, map[string]string{"net1": "new"}, nil},
		{"write over a dangling link", write, map[string]string{"net1": "-> not-there", ".net1.devinfo": "-> not-there"}, map[string]string{"net1": "new"}, nil},
		{"write reuses the temporary file of a killed writer", write, map[string]string{".net1.devinfo": "half of a much longer content"}, map[string]string{"net1": "new"}, nil},
		{"write replaces a FIFO", write, map[string]string{"net1": "fifo", ".net1.devinfo": "fifo"}, map[string]string{"net1": "new"}, nil},
		// If fs.protected_hardlinks is 0, a user who may create names in the directory can link another user's
		// file there.
		{"write with a hard link as temporary file", write, map[string]string{".net1.devinfo": "= ../victim"}, map[string]string{"net1": "new"}, nil},
		{"remove a hard link", remove, map[string]string{".net1.devinfo": "= ../victim"}, map[string]string{}, nil},
		{"sweep a hard link", sweep, map[string]string{".net1.devinfo": "= ../victim"}, map[string]string{}, nil},
		{"write over a directory", write, map[string]string{"net1": "dir"}, map[string]string{"net1": "dir"}, syscall.EEXIST},
		{"write with a directory as temporary file", write, map[string]string{".net1.devinfo": "full"}, map[string]string{".net1.devinfo": "dir"}, syscall.ENOTEMPTY},
		{"remove a FIFO", remove, map[string]string{"net1": "fifo", ".net1.devinfo": "fifo"}, map[string]string{}, nil},
		{"remove a missing file", remove, map[string]string{}, map[string]string{}, nil},
		{"remove in a missing directory", remove, nil, nil, nil},
		{"remove a file and the temporary file of a killed writer", remove, map[string]string{"net1": "x", ".net1.devinfo": "x"}, map[string]string{}, nil},
		{"remove keeps the temporary file of a running writer", remove, map[string]string{".net1.devinfo": "locked"}, map[string]string{".net1.devinfo": ""}, nil},
		{"remove a link and not its target", remove, map[string]string{"net1": "-> ../victim", ".net1.devinfo": "-> ../victim"}, map[string]string{}, nil},
		{"remove a file of any name", func(d *store.Dir) error { return d.Remove("net1\n\xff") }, map[string]string{"net1\n\xff": "x"}, map[string]string{}, nil},
		{"write under the longest name", func(d *store.Dir) error { return d.Write(longest, nil) }, nil, map[string]string{longest: ""}, nil},
	}
	for kind, open := range kinds {
		for n, c := range cases {
			d := open(fmt.Sprint(parent, "/", kind, n))
			fill(t, d, c.before)
			if err := c.act(d); !errors.Is(err, c.err) {
				t.Errorf("%s: %s: got %v", kind, c.what, err)
			}
			if got := content(t, d.Path("")); !maps.Equal(got, c.after) || (got == nil) != (c.after == nil) {
				t.Errorf("%s: %s: left %q", kind, c.what, got)
			}
		}
	}
	if got := difftest.Read(t, parent+"/victim"); got != "v" || mode(t, parent+"/victim") != 0o600 {
		t.Errorf("the file beside the directory holds %q, and has mode %v", got, mode(t, parent+"/victim"))
	}
}

// fill creates the directory, unless before is nil, and what it has.
func fill(t *testing.T, d *store.Dir, before map[string]string) {
	t.Helper()
	if before != nil {
		difftest.Must(t, os.Mkdir(d.Path(""), 0o755))
	}
	for name, content := range before {
		target, isLink := strings.CutPrefix(content, "-> ")
		file, isHard := strings.CutPrefix(content, "= ")
		switch {
		case isLink:
			difftest.Must(t, os.Symlink(target, d.Path(name)))
		case isHard:
			difftest.Must(t, os.Link(d.Path(file), d.Path(name)))
		case content == "dir":
			difftest.Must(t, os.MkdirAll(d.Path(name), 0o755))
		case content == "full":
			difftest.Must(t, os.MkdirAll(d.Path(name)+"/sub", 0o755))
		case content == "fifo":
			difftest.Must(t, syscall.Mkfifo(d.Path(name), 0o600))
		case content == "locked":
			lockTemporary(t, d, "net1")
		default:
			difftest.Write(t, d.Path(name), content, 0o644)
		}
	}
}

// content returns the content of the files in a directory, or nil if the directory does not exist.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	difftest.Must(t, err)
	all := map[string]string{}
	for _, e := range list {
		if all[e.Name()] = "dir"; !e.IsDir() {
			all[e.Name()] = difftest.Read(t, filepath.Join(dir, e.Name()))
		}
	}
	return all
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
	difftest.Must(t, err)
	return stat.Mode().Perm()
}
