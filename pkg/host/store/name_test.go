package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
)

func TestEveryMethodFailsForRelativeDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	d := store.Open("cni")
	_, read := d.Read("a")
	_, names := d.Names()
	_, name := d.Name("/cni/a")
	for method, err := range map[string]error{"Read": read, "Names": names, "Name": name, "Write": d.Write("a", nil),
		"Remove": d.Remove("a"), "Make": d.Make(), "Writable": d.Writable(), "Sweep": d.Sweep(nil)} {
		if err == nil || err.Error() != `directory "cni": must be an absolute path` {
			t.Errorf("%s: got %v", method, err)
		}
	}
}

func TestNameRejectsPathsNotDirectlyInDirectory(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "cni")
	difftest.Must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	difftest.Must(t, os.Symlink("/etc", filepath.Join(dir, "etc")))
	difftest.Must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	difftest.Write(t, filepath.Join(dir, "file"), "", 0o644)
	d := store.Open(dir)
	for path, want := range map[string]string{
		"":                     "must be an absolute path",
		"net1":                 "must be an absolute path",
		dir:                    "must be directly in " + dir,
		dir + "/":              "a file name is missing",
		dir + "/.":             "a file name must not begin with a dot",
		dir + "/net1/":         "a file name is missing",
		dir + "/../net1":       `must not contain ".."`,
		dir + "/sub/../net1":   `must not contain ".."`,
		dir + "/sub/net1":      "must be directly in " + dir,
		dir + "/etc/passwd":    "must be directly in " + dir,
		dir + "x/net1":         "must be directly in " + dir,
		parent + "/net1":       "must be directly in " + dir,
		"/etc/passwd":          "must be directly in " + dir,
		dir + "/.net1.tmp":     "a file name must not begin with a dot",
		dir + "/net1\x00":      "a file name must not contain a slash or a NUL",
		dir + "/net1\n":        "a file name must be UTF-8 without control characters",
		dir + "/net1\x7f":      "a file name must be UTF-8 without control characters",
		dir + "/net\u00851":    "a file name must be UTF-8 without control characters",
		dir + "/net\xff":       "a file name must be UTF-8 without control characters",
		dir + "/missing/net1":  "must be directly in " + dir,
		"/proc/self/root/net1": "must be directly in " + dir,

		dir + "/" + strings.Repeat("x", 256): "a file name must not have more than 255 bytes",
		// paths that cannot exist
		dir + "/file/sub/net1":                         "not a directory",
		dir + "/loop/net1":                             "too many links",
		dir + "/" + strings.Repeat("x", 256) + "/net1": "file name too long",
		dir + "/net1\x00/etc":                          "invalid argument",
	} {
		_, err := d.Name(path)
		var bad *store.NameError
		if !errors.As(err, &bad) || bad.Name != path {
			t.Errorf("%q: got %v", path, err)
		} else if !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", path, err, want)
		}
	}
}

// The directories are linked like /var/run and /run.
func TestNameAcceptsPathThroughLinkedParent(t *testing.T) {
	parent, err := filepath.EvalSymlinks(t.TempDir())
	difftest.Must(t, err)
	run, varRun := filepath.Join(parent, "run"), filepath.Join(parent, "var-run")
	difftest.Must(t, os.MkdirAll(run, 0o755))
	difftest.Must(t, os.Symlink(run, varRun))
	for _, made := range []bool{false, true} {
		for _, dirs := range [][2]string{{run, varRun}, {varRun, run}} {
			d, other := store.Open(dirs[0]+"/devinfo//cni/"), store.Open(dirs[1]+"/devinfo/cni")
			for _, path := range []string{d.Path("net1"), other.Path("net1"), dirs[0] + "//devinfo/./cni//net1"} {
				if name, err := d.Name(path); name != "net1" || err != nil {
					t.Errorf("directory made: %v: %s: got %q, %v", made, path, name, err)
				}
			}
			if _, err := d.Name(dirs[1] + "/devinfo/net1"); err == nil {
				t.Error("the parent is taken for the directory")
			}
		}
		if made {
			break
		}
		difftest.Must(t, store.Open(varRun+"/devinfo/cni").Write("net1", []byte("x")))
	}
	expect(t, store.Open(run+"/devinfo/cni"), "net1", "x")
}

// DEL removes only files in the directory, so an unreadable path must not look like a path elsewhere.
func TestUnreadablePathIsNotNameError(t *testing.T) {
	dir := t.TempDir()
	difftest.Must(t, os.MkdirAll(dir+"/closed/cni", 0o755), os.Chmod(dir+"/closed", 0))
	difftest.WithModes(t, func() {
		_, err := store.Open(dir + "/cni").Name(dir + "/closed/cni/net1")
		difftest.Is(t, err, syscall.EACCES)
		if errors.As(err, new(*store.NameError)) || !strings.Contains(err.Error(), dir+"/closed/cni") {
			t.Errorf("got %v", err)
		}
	})
	difftest.Must(t, os.Chmod(dir+"/closed", 0o700)) // for the removal of the directory
}

// FuzzName checks that an invalid name never reaches the file system, and that a valid one affects only the
// file with that name.
func FuzzName(f *testing.F) {
	for _, name := range []string{
		"net-c0ffee_net1", "", ".", "..", "../victim", "a/b", "a\x00b", ".hidden", ".net1.devinfo", "a\nb", "a\x1b[2J", "\xff", "victim", "…",
		strings.Repeat("a", 255), strings.Repeat("a", 256), "cni/a", "//", "a/", "a/.", "a/..",
	} {
		f.Add(name)
	}
	top := f.TempDir()
	f.Fuzz(func(t *testing.T, name string) {
		parent, err := os.MkdirTemp(top, "")
		difftest.Must(t, err)
		defer os.RemoveAll(parent)
		d := store.Open(filepath.Join(parent, "cni"))
		difftest.Must(t, os.WriteFile(filepath.Join(parent, "victim"), []byte("v"), 0o600))
		difftest.Must(t, os.Mkdir(d.Path(""), 0o755))
		fromPath, pathErr := d.Name(d.Path("") + "/" + name)
		err = d.Write(name, []byte("w"))
		if bad := new(store.NameError); err != nil && !errors.As(err, &bad) {
			t.Errorf("%q: %v", name, err)
		}
		plain := name != "" && name[0] != '.' && len(name) <= 255 && !strings.ContainsAny(name, "/\x00")
		if plain != (err == nil) || plain && pathErr == nil && fromPath != name {
			t.Errorf("%q: Write says %v, and Name %q", name, err, fromPath)
		}
		if _, read := d.Info(name); !plain && !errors.As(read, new(*store.NameError)) {
			t.Errorf("%q: Info says %v", name, read)
		}
		var want []string
		if err == nil {
			want = append(want, name)
			if data, err := d.Read(name); err != nil || string(data) != "w" {
				t.Errorf("%q: read %q, %v", name, data, err)
			}
		}
		if got := difftest.Names(t, d.Path("")); strings.Join(got, "/") != strings.Join(want, "/") {
			t.Errorf("%q (%v): there are %q", name, err, got)
		}
		if removed := d.Remove(name); (removed == nil) != (err == nil) {
			t.Errorf("%q: Write says %v, and Remove %v", name, err, removed)
		}
		if got := difftest.Names(t, d.Path("")); len(got) > 0 {
			t.Errorf("%q: Remove leaves %q", name, got)
		}
		if got := difftest.Names(t, parent); len(got) != 2 {
			t.Errorf("%q: beside the directory there are %q", name, got)
		}
		if data, err := os.ReadFile(filepath.Join(parent, "victim")); err != nil || string(data) != "v" {
			t.Errorf("%q: the file beside the directory holds %q, %v", name, data, err)
		}
	})
}
