package capturefile_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func parse(t *testing.T, text string) *capturefile.Host {
	t.Helper()
	h, err := capturefile.Parse([]byte(text))
	difftest.Must(t, err)
	return h
}

func TestFixturesNameMachineAndKernel(t *testing.T) {
	form := regexp.MustCompile(`^[a-z0-9-]+: (from documentation: .+|.+, Linux \d+\.\d+\.\S+)$`)
	for _, name := range capturetest.Names(t) {
		first, _, _ := strings.Cut(capturetest.Load(t, name).Comment, "\n")
		if capturetest.Load(t, name).File(capturetest.Report) != nil { // the file of a report may have any name
			name = "host"
		}
		if !strings.HasPrefix(first, name+": ") || !form.MatchString(first) {
			t.Errorf("%s: first line %q", name, first)
		}
	}
}

func TestParseSeparatesCommentAndNetlinkParts(t *testing.T) {
	h := parse(t, "box: Linux 6.12\nmore of it\n\n-- netlink/ip-link.json --\n[]\n-- sys/a --\n1\n")
	difftest.Equal(t, h.Comment, "box: Linux 6.12\nmore of it")
	difftest.Equal(t, string(h.File("netlink/ip-link.json")), "[]\n")
	for _, absent := range []string{"netlink/netns.json", "sys/a", "netlink", ""} {
		if got := h.File(absent); got != nil {
			t.Errorf("File(%q) is %q, want nil", absent, got)
		}
	}
}

func TestParseErrorsNameLineAndEntry(t *testing.T) {
	goldentest.Lines(t, "testdata/errors.txt", func(quoted string) []string {
		text, err := strconv.Unquote(quoted)
		difftest.Must(t, err)
		_, err = capturefile.Parse([]byte(text))
		return []string{fmt.Sprint(err)}
	})
	parse(t, "box\n-- sys/ --\n-- sys/a/ --\n-- sys/a/b --\n1\n-- sys/a/ --\n") // a directory may appear twice
}

func TestErrorOfLoadNamesFile(t *testing.T) {
	_, err := capturefile.Load("/dev/zero")
	difftest.Is(t, err, store.ErrNotRegular)
	difftest.Says(t, err, "/dev/zero")
	name := filepath.Join(t.TempDir(), "box.txtar")
	_, err = capturefile.Load(name)
	difftest.Is(t, err, fs.ErrNotExist)
	difftest.Write(t, name, "box\n-- a --\n", 0o644)
	_, err = capturefile.Load(name)
	difftest.Says(t, err, name+": line 2: ")
	difftest.Write(t, name, "any text\n", 0o644)
	_, err = capturefile.Load(name)
	difftest.Says(t, err, name+": not a capture")
	for _, other := range []string{"root/b", "node/node.json"} {
		difftest.Write(t, name, "box\n-- sys/a --\n1\n-- "+other+" --\n1\n", 0o644)
		_, err = capturefile.Load(name)
		difftest.Must(t, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(box))
	f.Add([]byte("box\n-- netlink/ip-link.json --\n[{\"ifindex\":1}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := capturefile.Parse(data)
		if err != nil {
			return
		}
		err = fs.WalkDir(h.Sys(), ".", func(name string, e fs.DirEntry, err error) error {
			if err == nil {
				fs.ReadFile(h.Sys(), name)
				fs.Stat(h.Sys(), name+"/..")
			}
			return err
		})
		if err != nil {
			t.Errorf("walking what was parsed: %v", err)
		}
	})
}

func TestUnpackRootWritesFilesOfHost(t *testing.T) {
	h := parse(t, `box: a host
-- node/node.json --
{"bootID": "b"}
-- root/var/lib/a/one --
text
-- root/var/lib/b/two -> ../../../var/lib/a/one --
-- root/var/lib/b/three base64 --
LS0gAP8=
`)
	dir := filepath.Join(t.TempDir(), "new")
	difftest.Must(t, h.UnpackRoot(dir))
	for name, want := range map[string]string{"var/lib/a/one": "text\n", "var/lib/b/two": "text\n", "var/lib/b/three": "-- \x00\xff"} {
		difftest.Same(t, name, difftest.Read(t, filepath.Join(dir, name)), want)
	}
	difftest.Equal(t, string(h.File("node/node.json")), "{\"bootID\": \"b\"}\n")
}

func TestErrorNamesMatchEntries(t *testing.T) {
	for entry := range strings.SplitSeq("EACCES EINVAL EOPNOTSUPP", " ") {
		_, err := fs.ReadFile(parse(t, "box: a host\n-- sys/a !"+entry+" --\n").Sys(), "a")
		if name, ok := capturefile.ErrorName(err); !ok || name != entry {
			t.Errorf("%v: %q, %v", err, name, ok)
		}
	}
	if name, ok := capturefile.ErrorName(os.ErrClosed); ok {
		t.Errorf("a name %q for an error that no attribute has", name)
	}
}

// An unpacked capture has no links to files outside, and no file is lost.
func FuzzUnpackRoot(f *testing.F) {
	for _, name := range capturetest.Names(f) {
		text := difftest.Read(f, "../../../testdata/hosts/"+name+".txtar")
		f.Add([]byte(strings.ReplaceAll(text, "-- sys/", "-- root/sys/")))
	}
	f.Add([]byte("box\n-- root/a/b -> ../../x --\n-- root/a/c/ --\n-- root/a/d -> c/../.. --\n-- root/a/c/e base64 --\nAA==\n"))
	f.Add([]byte("box\n-- root/a/b -> ../c/d --\n-- root/c/d -> ../a/b --\n-- root/a/b/e --\n"))
	top := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := capturefile.Parse(text)
		if err != nil {
			return
		}
		parent, err := os.MkdirTemp(top, "")
		difftest.Must(t, err)
		defer os.RemoveAll(parent)
		dir := filepath.Join(parent, "dir")
		if err := h.UnpackRoot(dir); err != nil {
			return // for example a name that is too long
		}
		err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.Type().IsRegular() || e.IsDir() {
				return err
			}
			if to, err := filepath.EvalSymlinks(path); err == nil && to != dir && !strings.HasPrefix(to, dir+"/") {
				t.Errorf("%s leads to %s", path, to)
			}
			return nil
		})
		difftest.Must(t, err)
		difftest.Holds(t, parent, "dir")
	})
}
