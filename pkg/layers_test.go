// Package pkg_test checks rules for the whole repository: imports, sizes of types, and documents that name code.
package pkg_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

const module = "devinfo-cni.io/"

// roofs lists the folders that packages live under, each with the roofs that its packages may import. A roof may import
// itself, and a program below cmd may import every roof; test is described at kits.
var roofs = map[string][]string{
	"devinfo":   nil,
	"pkg/host":  {"devinfo"},
	"pkg/core":  {"devinfo", "pkg/host"},
	"pkg/agent": {"devinfo", "pkg/host", "pkg/core"},
	"pkg/dra":   {"devinfo", "pkg/host", "pkg/core"},
	"pkg/ctl":   {"devinfo", "pkg/host", "pkg/core"},
	"plugins":   {"devinfo", "pkg/host", "pkg/core"},
	"cmd":       {"devinfo", "pkg/host", "pkg/core", "pkg/agent", "pkg/dra", "pkg/ctl", "plugins"},
	"deploy":    {"devinfo"},
	"test":      {"devinfo", "pkg/host", "pkg/core", "pkg/agent", "pkg/dra", "pkg/ctl", "plugins", "cmd"},
}

// kits are the packages below test that others may import. The name of any other kit ends in "test", and it lives beside
// the code that it is for. Only tests, kits and packages below test import kits.
var kits = []string{
	"test/crash/inject", "test/difftest", "test/goldentest", "test/mistakes", "test/node", "test/testpmd", "test/undertest",
}

// An exception allows one import that roofs forbids.
type exception struct {
	from, to string // packages; from + testSuffix allows the import to the tests of from only
	reason   string
}

const testSuffix = " (test)"

var exceptions = []exception{
	{"pkg/ctl/validate", "pkg/dra/cniconfig", "the driver's own parser says whether the driver accepts a configuration"},
	{"pkg/ctl/validate" + testSuffix, "pkg/dra/devices/inventory", "validate and the driver must agree about each configuration"},
	{"pkg/ctl/validate" + testSuffix, "plugins/devinfo", "validate and the plugin must agree about each configuration"},
	{"pkg/ctl/capture" + testSuffix, "pkg/dra/devices/inventory", "the driver must find the same devices in a capture as on the host"},
}

// A pack is a package in the output of go list.
type pack struct {
	ImportPath                         string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
}

// roof returns the roof of the package; "" = none. A folder with tests only counts as a part of test.
func (p *pack) roof() string {
	if len(p.GoFiles) == 0 {
		return "test"
	}
	return roofOf(strings.TrimPrefix(p.ImportPath, module))
}

func roofOf(name string) string {
	for roof := range roofs {
		if strings.HasPrefix(name+"/", roof+"/") {
			return roof
		}
	}
	return ""
}

// may reports whether package from, of this roof, may import package to.
func may(from, roof, to string, isTest bool) bool {
	isKit := slices.Contains(kits, to) || strings.HasSuffix(to, "test")
	above := roofOf(to)
	switch {
	case from == to: // by a test
		return true
	case isKit && !isTest && roof != "test" && !strings.HasSuffix(from, "test"):
		return false
	case above == "test":
		return isKit
	}
	return slices.Contains(roofs[roof], above) || roof == above && roof != "cmd"
}

// breaches returns one line for each wrong import, each package without a roof, and each needless exception.
func breaches(packs []pack, exceptions []exception) (list []string) {
	needless := slices.Clone(exceptions)
	check := func(p *pack, name string, imports []string, isTest bool) {
		from := name
		if isTest {
			from += testSuffix
		}
		for _, path := range slices.Compact(slices.Sorted(slices.Values(imports))) {
			to, ours := strings.CutPrefix(path, module)
			if !ours || may(name, p.roof(), to, isTest) {
				continue
			}
			is := func(e exception) bool { return (e.from == from || e.from == name) && e.to == to }
			if !slices.ContainsFunc(exceptions, is) {
				list = append(list, from+" imports "+to)
			}
			needless = slices.DeleteFunc(needless, is)
		}
	}
	for _, p := range packs {
		name := strings.TrimPrefix(p.ImportPath, module)
		if p.roof() == "" {
			list = append(list, name+" is under no roof: see roofs in pkg/layers_test.go")
			continue
		}
		check(&p, name, p.Imports, false)
		check(&p, name, slices.Concat(p.TestImports, p.XTestImports), true)
	}
	for _, e := range needless {
		list = append(list, e.from+" does not import "+e.to+": remove the exception")
	}
	slices.Sort(list)
	return list
}

func TestPackagesImportAlongArrowsOnly(t *testing.T) {
	for _, breach := range breaches(listed(t), exceptions) {
		t.Error(breach)
	}
}

// library matches the packages of the library, a separate module that ./... does not match.
const library = module + "devinfo/..."

// listed returns all packages of the module and the library.
func listed(t *testing.T) (packs []pack) {
	t.Helper()
	watch(t)
	dec := json.NewDecoder(bytes.NewReader(goList(t, "..", "-json=ImportPath,GoFiles,Imports,TestImports,XTestImports", "./...", library)))
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
	return strings.HasSuffix(path, "_test.go") || strings.HasSuffix(folder(path), "test") || strings.HasPrefix(folder(path), "test/")
}

// The node's programs need no Kubernetes client library, and what they share needs no types of its API. devinfoctl reads
// the offered devices from a file of cni-dra-driver, so it does not evaluate rules. Its only package that needs API types
// is pkg/ctl/validate, which reads claims. Only programs that restore or judge devices read their settings.
func TestNodeProgramsDoNotImportLargePackages(t *testing.T) {
	watch(t)
	api := []string{"k8s.io/client-go", "k8s.io/apimachinery", "k8s.io/api/", "sigs.k8s.io/", module + "pkg/dra"}
	settings := []string{"github.com/cilium/ebpf", module + "pkg/host/settings"}
	for program, denied := range map[string][]string{
		"./cmd/devinfo":       settings,
		"./cmd/devinfo-agent": append(settings, api...),
		"./cmd/devinfoctl":    {"k8s.io/client-go", "k8s.io/apiserver", "github.com/google/cel-go", module + "pkg/dra/devices"},
		"./pkg/core/...":      api,
		"./pkg/host/...":      api,
		"./pkg/ctl/capture":   api,
		"./pkg/ctl/node":      api,
		"./pkg/ctl/topology":  api,
	} {
		for path := range strings.FieldsSeq(string(goList(t, "..", "-deps", program))) {
			if slices.ContainsFunc(denied, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
				t.Errorf("%s imports %s", program, path)
			}
		}
	}
}

// A program that imports the library gets no other modules, because their versions could conflict with the program's own.
// The rule includes the library's tests.
func TestLibraryNeedsStandardLibraryOnly(t *testing.T) {
	watch(t)
	difftest.Equal(t, strings.TrimSpace(string(goList(t, "../devinfo", "-m", "all"))), module+"devinfo")
}
