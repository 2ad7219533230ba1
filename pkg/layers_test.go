// Package pkg_test checks rules for the whole repository: imports, sizes of types, and documents that name code.
package pkg_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

const module = "devinfo-cni.io/"

// layers lists the packages of each layer, the lowest layer first. A package may import lower layers only, so
// packages of one layer do not import each other. Put a new package into the lowest layer above all its imports.
var layers = [][]string{
	// No imports from this repository.
	{"devinfo/pci", "devinfo/atomicfile", "devinfo/shape", "pkg/core/pod", "pkg/core/build", "pkg/core/httpstatus", "pkg/core/clierr", "test/difftest", "pkg/core/nri/nritest"},
	// The device-info format; helpers for command lines and golden files.
	{"devinfo", "pkg/ctl/commandline", "test/goldentest"},
	// Each package reads or writes one thing: sysfs, netlink, the store, a configuration, a capture, an API. pkg/core/cniexec
	// runs other plugins.
	{"devinfo/store", "pkg/host/sysfs", "pkg/host/link", "pkg/core/config", "pkg/host/capturefile", "pkg/core/cdispec", "pkg/core/cniexec", "pkg/core/nri", "pkg/ctl/cluster", "pkg/core/podresources"},
	// Root's own files; the devices of a host.
	{"pkg/core/safefile", "pkg/core/safefile/safefiletest", "pkg/host/hostdev"},
	// The steps of an ADD, which plugins/devinfo combines; the records of cni-dra-driver; kits for tests.
	{
		"pkg/core/journal", "pkg/core/install", "pkg/core/config/attachment", "pkg/core/discovery", "pkg/core/result",
		"pkg/dra/metadata", "pkg/core/state", "pkg/dra/status",
		"pkg/host/link/linkhost", "pkg/host/link/linktest", "pkg/host/link/crosscheck", "pkg/host/capturefile/capturetest",
	},
	// What a container may access of a device; the check of an ADD's result; the devices of a node.
	{"pkg/core/grant", "pkg/core/check", "pkg/core/check/checktest", "pkg/dra/devices/inventory", "pkg/dra/devices/restore", "pkg/dra/cniconfig"},
	// The configuration for a node's device.
	{"pkg/dra/devices/binding", "pkg/dra/devices/restore/restoretest"},
	// The life of an allocated device, without sandboxes.
	{"pkg/dra/devices"},
	// The life of a claim. It uses devices through pkg/dra/devices.
	{"pkg/dra/claim"},
	{"plugins/devinfo", "pkg/dra", "pkg/agent/inject", "pkg/ctl/validate", "pkg/ctl/capture", "pkg/ctl/node", "pkg/host/link/crosscheck/crosschecktest"},
	// devinfo-agent; the reports of devinfoctl.
	{"pkg/agent", "pkg/ctl/doctor", "pkg/ctl/topology"},
	{"cmd/devinfo", "cmd/devinfoctl", "cmd/cni-dra-driver", "cmd/cni-dra-gate", "cmd/devinfo-agent", "cmd/kubectl-devinfo"},
}

// outside is the prefix of packages that need no layer. Without one, they may import all packages, and no package with
// a layer imports them.
const outside = "test/"

// A pack is a package in the output of go list.
type pack struct {
	ImportPath string
	GoFiles    []string
	Imports    []string
}

// breaches returns one line for each wrong import, and for each difference between packs and the packages in layers.
func breaches(packs []pack, layers [][]string) (list []string) {
	on := map[string]int{}
	for n, layer := range layers {
		for _, name := range layer {
			on[name] = n
		}
	}
	exists := map[string]bool{}
	for _, p := range packs {
		name, _ := strings.CutPrefix(p.ImportPath, module)
		layer, ok := on[name]
		if len(p.GoFiles) == 0 || !ok && strings.HasPrefix(name, outside) {
			continue
		}
		exists[name] = true
		if !ok {
			list = append(list, name+" has no layer: add it to layers in pkg/layers_test.go")
			continue
		}
		for _, path := range p.Imports {
			imported, ours := strings.CutPrefix(path, module)
			if !ours {
				continue
			}
			switch below, ok := on[imported]; {
			case !ok && strings.HasPrefix(imported, outside):
				list = append(list, name+" imports "+imported+", which has no layer")
			case ok && below >= layer:
				list = append(list, fmt.Sprintf("%s (layer %d) imports %s (layer %d), which is not lower", name, layer, imported, below))
			}
		}
	}
	for name := range on {
		if !exists[name] {
			list = append(list, name+" has a layer, but is not a package")
		}
	}
	slices.Sort(list)
	return list
}

func TestPackagesImportLowerLayersOnly(t *testing.T) {
	for _, breach := range breaches(listed(t), layers) {
		t.Error(breach)
	}
}

// library matches the packages of the library, a separate module that ./... does not match.
const library = module + "devinfo/..."

// listed returns all packages of the module and the library.
func listed(t *testing.T) (packs []pack) {
	t.Helper()
	watch(t)
	dec := json.NewDecoder(bytes.NewReader(goList(t, "..", "-json=ImportPath,GoFiles,Imports", "./...", library)))
	for dec.More() {
		var p pack
		difftest.Must(t, dec.Decode(&p))
		packs = append(packs, p)
	}
	if len(packs) < 10 {
		t.Fatalf("go list gives %d packages", len(packs))
	}
	return packs
}

func goList(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	difftest.Must(t, err)
	return out
}

// watch calls os.Stat on every source file. A cached test result depends on the files that the test itself opens,
// but not on the files that go list reads. After this call go test runs the test again if a source file has
// changed.
func watch(t *testing.T) {
	t.Helper()
	for _, path := range sources(t, ".go", ".mod") {
		_, _ = os.Stat(path)
	}
}

// sources returns the paths of the repository's files with one of the extensions.
func sources(t *testing.T, extensions ...string) (paths []string) {
	t.Helper()
	difftest.Must(t, filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil, e.IsDir() && path != ".." && (e.Name()[0] == '.' || e.Name() == "testdata" || path == "../bin"):
			return filepath.SkipDir // also skip a directory that a test has removed during the walk
		case slices.Contains(extensions, filepath.Ext(path)):
			paths = append(paths, path)
		}
		return nil
	}))
	return paths
}

// folder returns the directory of a source file, relative to the repository.
func folder(path string) string { return strings.TrimPrefix(filepath.Dir(path), "../") }

// isTest reports whether a source file belongs to tests. The names of kits for tests end in "test".
func isTest(path string) bool {
	return strings.HasSuffix(path, "_test.go") || strings.HasSuffix(folder(path), "test") || strings.HasPrefix(folder(path), outside)
}

func parsed(t *testing.T, fset *token.FileSet, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	difftest.Must(t, err)
	return file
}

func TestBreachesAreFound(t *testing.T) {
	layers := [][]string{{"pkg/a"}, {"pkg/b", "pkg/c"}, {"cmd/d"}}
	files := []string{"x.go"}
	for name, test := range map[string]struct {
		packs []pack
		want  []string
	}{
		"kept": {[]pack{
			{"devinfo-cni.io/pkg/a", files, []string{"fmt", "example.com/pkg/c"}}, {"devinfo-cni.io/pkg/b", files, []string{"devinfo-cni.io/pkg/a"}},
			{"devinfo-cni.io/pkg/c", files, nil}, {"devinfo-cni.io/cmd/d", files, []string{"devinfo-cni.io/pkg/a", "devinfo-cni.io/pkg/b"}},
			{"devinfo-cni.io/test/e", files, []string{"devinfo-cni.io/cmd/d"}}, {"devinfo-cni.io/pkg", nil, nil},
		}, nil},
		"broken": {[]pack{
			{"devinfo-cni.io/pkg/a", files, []string{"devinfo-cni.io/cmd/d"}}, {"devinfo-cni.io/pkg/b", files, []string{"devinfo-cni.io/pkg/c"}},
			{"devinfo-cni.io/pkg/c", files, []string{"devinfo-cni.io/test/e"}}, {"devinfo-cni.io/pkg/new", files, nil},
		}, []string{
			"cmd/d has a layer, but is not a package",
			"pkg/a (layer 0) imports cmd/d (layer 2), which is not lower",
			"pkg/b (layer 1) imports pkg/c (layer 1), which is not lower",
			"pkg/c imports test/e, which has no layer",
			"pkg/new has no layer: add it to layers in pkg/layers_test.go",
		}},
	} {
		if got := breaches(test.packs, layers); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, test.want)
		}
	}
}

// devinfo-agent and devinfoctl need no Kubernetes client library. devinfoctl reads the offered devices from a file of
// cni-dra-driver, so it does not evaluate rules. The denied packages would make up about a third of the program.
func TestNodeProgramsDoNotImportLargePackages(t *testing.T) {
	watch(t)
	for program, denied := range map[string][]string{
		"../cmd/devinfo-agent": {"k8s.io/client-go", "k8s.io/apimachinery", "k8s.io/api/", "sigs.k8s.io/", module + "pkg/dra"},
		"../cmd/devinfoctl":    {"k8s.io/client-go", "k8s.io/apiserver", "github.com/google/cel-go", module + "pkg/dra/devices/inventory"},
	} {
		for path := range strings.FieldsSeq(string(goList(t, program, "-deps", "."))) {
			if slices.ContainsFunc(denied, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
				t.Errorf("%s imports %s", program, path)
			}
		}
	}
}

// A program that imports the library gets no other packages. It gets no other modules either, because their versions
// could conflict with the program's own. The rule includes the library's tests.
func TestLibraryNeedsStandardLibraryOnly(t *testing.T) {
	watch(t)
	if got := strings.Fields(string(goList(t, "../devinfo", "-m", "all"))); !reflect.DeepEqual(got, []string{module + "devinfo"}) {
		t.Errorf("the library needs the modules %q", got)
	}
	foreign := strings.Fields(string(goList(t, "../devinfo", "-deps", "-test", "-f", "{{if not (or .Standard .ForTest)}}{{.ImportPath}}{{end}}", "./...")))
	if !slices.Contains(foreign, "devinfo-cni.io/devinfo/store") {
		t.Fatalf("go list gives %q", foreign)
	}
	for _, path := range foreign {
		if !strings.HasPrefix(path, module+"devinfo") {
			t.Errorf("the library imports %s", path)
		}
	}
}

func TestContributingNamesEveryPackageAndNoOther(t *testing.T) {
	text := difftest.Read(t, "../CONTRIBUTING.md")
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:cmd|pkg|plugins|devinfo)(?:/[a-z0-9/-]+)?)`").FindAllStringSubmatch(text, -1) {
		named[m[1]] = true
	}
	exists := map[string]bool{"pkg": true}
	for _, p := range listed(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if exists[name] = true; len(p.GoFiles) > 0 && !strings.HasPrefix(name, outside) && !named[name] {
			t.Errorf("CONTRIBUTING.md: %s is missing: describe it in \"Where things are\"", name)
		}
	}
	for name := range named {
		if !exists[name] {
			t.Errorf("CONTRIBUTING.md: %s is not a package", name)
		}
	}
}
