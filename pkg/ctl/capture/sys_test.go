package capture_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/ctl/capture"
	"devinfo-cni.io/pkg/hosttxt"
)

// hosts are the captured hosts.
func hosts(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("../../../testdata/hosts/*.txtar")
	if err != nil || len(names) < 12 {
		t.Fatalf("%d hosts, %v", len(names), err)
	}
	return names
}

func TestCaptureOfACapturedHostIsTheSame(t *testing.T) {
	for _, name := range hosts(t) {
		h, err := hosttxt.Load(name)
		must(t, err)
		ar, err := txtar.ParseFile(name)
		must(t, err)
		got, denied, err := capture.Sys(h.Sys())
		if err != nil || denied != 0 {
			t.Errorf("%s: %d denied, %v", name, denied, err)
		}
		want := sysOf(ar.Files)
		maps.DeleteFunc(want, func(entry, _ string) bool { return storage.MatchString(entry) })
		if diff := cmp.Diff(want, sysOf(got)); diff != "" {
			t.Errorf("%s: the capture differs from the host:\n%s", name, diff)
		}
	}
}

// storage matches the entries of the one PCI function of testdata/hosts that is no
// network controller, though network controllers are below it.
var storage = regexp.MustCompile(`/0000:00:0e\.0/[a-z_]+( |$)|devices/0000:00:0e\.0 ->|/drivers/vmd/`)

// sysOf gives the entries below sys/ by name.
func sysOf(files []txtar.File) map[string]string {
	sys := map[string]string{}
	for _, f := range files {
		if strings.HasPrefix(f.Name, "sys/") {
			sys[f.Name] = string(f.Data)
		}
	}
	return sys
}
