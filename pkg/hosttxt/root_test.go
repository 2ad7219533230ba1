package hosttxt_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/hosttxt"
)

func TestFilesOfTheHostAreUnpacked(t *testing.T) {
	h := parse(t, `box: a host
-- node/node.json --
{"bootID": "b"}
-- root/var/lib/a/one --
text
-- root/var/lib/b/two -> ../a/one --
-- root/var/lib/b/three base64 --
LS0gAP8=
`)
	dir := filepath.Join(t.TempDir(), "new")
	if err := h.UnpackRoot(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"var/lib/a/one": "text\n", "var/lib/b/two": "text\n", "var/lib/b/three": "-- \x00\xff"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if got := string(h.File("node/node.json")); got != "{\"bootID\": \"b\"}\n" {
		t.Errorf("node.json: %q", got)
	}
}

// A captured host is somebody else's text: what is unpacked of it must not lead to our
// own files.
func TestLinksOutOfTheHostAreRefused(t *testing.T) {
	for entry, says := range map[string]string{
		"root/a/b -> /etc/passwd":    "leads out",
		"root/a/b -> ../../etc":      "leads out",
		"root/a/b -> ../x/../../etc": "leads out",
		"root/b -> etc":              "leads out",
		"root/a/../../b":             "not a clean",
		"root/a/b !EIO":              "neither",
		"root/":                      "neither",
		"root/a/b base64":            "illegal base64",
		"node/node.txt":              "neither",
		"root/a/b -> x/../y":         "leads out",
	} {
		body := ""
		if strings.HasSuffix(entry, "base64") {
			body = "***\n"
		}
		if _, err := hosttxt.Parse([]byte("box: a host\n-- " + entry + " --\n" + body)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", entry, err, says)
		}
	}
}

func TestErrorsHaveTheNamesThatEntriesHave(t *testing.T) {
	for entry := range strings.SplitSeq("EACCES EINVAL EOPNOTSUPP", " ") {
		_, err := fs.ReadFile(parse(t, "box: a host\n-- sys/a !"+entry+" --\n").Sys(), "a")
		if name, ok := hosttxt.ErrorName(err); !ok || name != entry {
			t.Errorf("%v: %q, %v", err, name, ok)
		}
	}
	if name, ok := hosttxt.ErrorName(os.ErrClosed); ok {
		t.Errorf("a name %q for an error that no attribute has", name)
	}
}

// What is unpacked of a capture that anybody may have written leads to nothing outside,
// and nothing is lost.
func FuzzUnpackRoot(f *testing.F) {
	names, err := filepath.Glob("../../testdata/hosts/*.txtar")
	if err != nil || len(names) == 0 {
		f.Fatalf("captured hosts: %q, %v", names, err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(strings.ReplaceAll(string(data), "-- sys/", "-- root/sys/")))
	}
	f.Add([]byte("box\n-- root/a/b -> ../../x --\n-- root/a/c/ --\n-- root/a/d -> c/../.. --\n-- root/a/c/e base64 --\nAA==\n"))
	f.Add([]byte("box\n-- root/a/b -> ../c/d --\n-- root/c/d -> ../a/b --\n-- root/a/b/e --\n"))
	top := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := hosttxt.Parse(text)
		if err != nil {
			return
		}
		parent, err := os.MkdirTemp(top, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(parent)
		dir := filepath.Join(parent, "dir")
		if err := h.UnpackRoot(dir); err != nil {
			return // such as a name that is too long
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
		if err != nil {
			t.Error(err)
		}
		if beside, err := os.ReadDir(parent); err != nil || len(beside) != 1 {
			t.Errorf("beside the directory: %v, %v", beside, err)
		}
	})
}
