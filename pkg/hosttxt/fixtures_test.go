package hosttxt_test

import (
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/hosttxt"
)

// eachFixture runs f with every host of testdata/hosts.
func eachFixture(t *testing.T, f func(t *testing.T, h *hosttxt.Host)) {
	names, err := filepath.Glob("../../testdata/hosts/*.txtar")
	if err != nil || len(names) < 12 {
		t.Fatalf("testdata/hosts holds %d hosts, %v", len(names), err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			h, err := hosttxt.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			f(t, h)
		})
	}
}

func TestFixturesNameMachineAndKernel(t *testing.T) {
	form := regexp.MustCompile(`^[a-z0-9-]+: (from documentation: .+|.+, Linux \d+\.\d+\.\S+)$`)
	eachFixture(t, func(t *testing.T, h *hosttxt.Host) {
		first, _, _ := strings.Cut(h.Comment, "\n")
		if name, _, _ := strings.Cut(first, ":"); name+".txtar" != path.Base(t.Name()) || !form.MatchString(first) {
			t.Errorf("first line %q", first)
		}
	})
}
