package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// largest is the limit for the stripped executable in bytes. The executable is started for every verb of every
// attachment.
const largest = 4_800_000

func TestExecutableHasNoDeniedPackage(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	difftest.Must(t, err)
	all := strings.Fields(string(out))
	// The plugin runs delegates and enters namespaces by the packages that all CNI plugins use.
	for _, path := range []string{"github.com/containernetworking/cni/libcni", "github.com/containernetworking/plugins/pkg/ns"} {
		if !slices.Contains(all, path) {
			t.Errorf("%s is not among %d packages", path, len(all))
		}
	}
	denied := difftest.Read(t, "testdata/denied")
	for _, path := range all {
		if strings.Contains(strings.ToLower(path), "yaml") {
			t.Errorf("%s is denied: CNI configurations are JSON", path)
		}
		for line := range strings.Lines(denied) {
			if root, why, _ := strings.Cut(line, ": "); strings.HasPrefix(path+"/", root+"/") {
				t.Errorf("%s is denied: %s", path, why)
			}
		}
	}
}

// The test uses the Makefile's build flags.
func TestExecutableIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it builds a program")
	}
	name := filepath.Join(t.TempDir(), "devinfo")
	cmd := exec.Command("go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags", "-s -w", "-o", name, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(name)
	difftest.Must(t, err)
	if info.Size() > largest {
		t.Errorf("the executable has %d bytes, %d too many: run go tool nm -size -sort size on an unstripped build to find the largest symbols", info.Size(), info.Size()-largest)
	}
}
