package hosttxt_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/hosttxt"
)

func TestOnlyRegularFilesAreLoaded(t *testing.T) {
	if _, err := hosttxt.Load("/dev/zero"); err == nil || err.Error() != "/dev/zero: is no regular file" {
		t.Errorf("got %v", err)
	}
}

func TestFilesOfTheHostAreUnpacked(t *testing.T) {
	h, err := hosttxt.Parse([]byte(`box: a host
-- node/node.json --
{"bootID": "b"}
-- root/var/lib/a/one --
text
-- root/var/lib/b/two -> ../a/one --
-- root/var/lib/b/three base64 --
LS0gAP8=
`))
	if err != nil {
		t.Fatal(err)
	}
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
		h, err := hosttxt.Parse([]byte("box: a host\n-- sys/a !" + entry + " --\n"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Sys().(interface{ ReadFile(string) ([]byte, error) }).ReadFile("a")
		if name, ok := hosttxt.ErrorName(err); !ok || name != entry {
			t.Errorf("%v: %q, %v", err, name, ok)
		}
	}
	if name, ok := hosttxt.ErrorName(os.ErrClosed); ok {
		t.Errorf("a name %q for an error that no attribute has", name)
	}
}
