// Package pkg_test holds the import law: every package stands on a floor, and
// imports point down. Neighbours, on one floor, never import each other.
package pkg_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "devinfo-cni.io/"

// floors are the floors from the ground up; a package may import what is below it.
// A new package goes on the lowest floor that is above all it imports, and on the
// floor of those that it must not import.
var floors = [][]string{
	{"devinfo/pci", "devinfo/atomicfile", "devinfo/shape", "pkg/pod", "pkg/build", "pkg/httpstatus", "pkg/ctl/clierr", "pkg/difftest", "pkg/nri/nritest"}, // an address is text and numbers; a pod is its names; a build its version
	{"devinfo", "pkg/ctl/commandline", "pkg/goldentest"}, // the format: bytes in, values out
	// What reads and writes, each its own thing: the three doors (sysfs, link, the
	// store), the configuration, captured hosts, and what runs other plugins.
	{"devinfo/store", "pkg/sysfs", "pkg/link", "pkg/config", "pkg/capturefile", "pkg/cdispec", "pkg/cniexec", "pkg/nri", "pkg/cluster", "pkg/podresources"},
	{"pkg/safefile", "pkg/safefile/safefiletest", "pkg/hostdev"}, // root's own files; the devices of a host
	// The steps of an ADD, which only the plugin puts together; and test kits.
	{
		"pkg/journal", "pkg/install", "pkg/attachment", "pkg/discovery", "pkg/result",
		"pkg/dra/metadata", "pkg/dra/state", "pkg/dra/status",
		"pkg/link/linkhost", "pkg/link/linktest", "pkg/link/crosscheck", "pkg/capturefile/capturetest",
	},
	// What may be had of the device that was discovered; what an ADD left, against what is
	// there; the devices of a node, running or captured.
	{"pkg/grant", "pkg/check", "pkg/check/checktest", "pkg/dra/devices/inventory", "pkg/dra/devices/restore", "pkg/dra/cniconfig"},
	{"pkg/dra/devices/binding", "pkg/dra/devices/restore/restoretest"}, // a device of the node, and the configuration that it goes into
	{"pkg/dra/devices"}, // it knows no sandbox
	{"pkg/dra/claim"},   // the engine, which knows no device but through it
	{"plugins/devinfo", "pkg/dra", "pkg/inject", "pkg/ctl/validate", "pkg/ctl/capture", "pkg/ctl/node", "pkg/link/crosscheck/crosschecktest"},
	{"pkg/agent", "pkg/ctl/doctor", "pkg/ctl/topology"}, // a node agent; what people are shown of a node
	{"cmd/devinfo", "cmd/devinfoctl", "cmd/cni-dra-driver", "cmd/cni-dra-gate", "cmd/devinfo-agent", "cmd/kubectl-devinfo"},
}

// outside is no part of the house: what is there may import anything, and nothing
// of the house imports it.
const outside = "test/"

// A pack is a package of the module and what it imports, as go list has it.
type pack struct {
	ImportPath string
	GoFiles    []string
	Imports    []string
}

// breaches lists what is against the law.
func breaches(packs []pack, floors [][]string) (list []string) {
	on := map[string]int{}
	for n, floor := range floors {
		for _, name := range floor {
			on[name] = n
		}
	}
	there := map[string]bool{}
	for _, p := range packs {
		name, _ := strings.CutPrefix(p.ImportPath, module)
		if strings.HasPrefix(name, outside) || len(p.GoFiles) == 0 {
			continue
		}
		there[name] = true
		floor, ok := on[name]
		if !ok {
			list = append(list, name+" is on no floor: put it into the table of pkg/floors_test.go")
			continue
		}
		for _, path := range p.Imports {
			imported, ours := strings.CutPrefix(path, module)
			if !ours {
				continue
			}
			switch below, ok := on[imported]; {
			case strings.HasPrefix(imported, outside):
				list = append(list, name+" imports "+imported+", which is outside of the house")
			case ok && below >= floor:
				list = append(list, fmt.Sprintf("%s (floor %d) imports %s (floor %d): imports point down", name, floor, imported, below))
			}
		}
	}
	for name := range on {
		if !there[name] {
			list = append(list, name+" is in the table, but is no package")
		}
	}
	slices.Sort(list)
	return list
}

func TestImportsPointDown(t *testing.T) {
	for _, breach := range breaches(listed(t), floors) {
		t.Error(breach)
	}
}

// library is a module of its own, which ./... leaves out.
const library = module + "devinfo/..."

// listed are the packages of the house.
func listed(t *testing.T) (packs []pack) {
	t.Helper()
	watch(t)
	dec := json.NewDecoder(bytes.NewReader(goList(t, "..", "-json=ImportPath,GoFiles,Imports", "./...", library)))
	for dec.More() {
		var p pack
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return out
}

// watch looks at every source file, so that go test does not give a cached answer
// when one has changed: it cannot know what go list reads.
func watch(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && e.Name() == ".git" {
			return filepath.SkipDir // a directory that is gone meanwhile is none of ours
		}
		if strings.HasSuffix(path, ".go") || e.Name() == "go.mod" {
			_, _ = os.Stat(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheLawCanBeBroken(t *testing.T) {
	house := [][]string{{"pkg/a"}, {"pkg/b", "pkg/c"}, {"cmd/d"}}
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
			"cmd/d is in the table, but is no package",
			"pkg/a (floor 0) imports cmd/d (floor 2): imports point down",
			"pkg/b (floor 1) imports pkg/c (floor 1): imports point down",
			"pkg/c imports test/e, which is outside of the house",
			"pkg/new is on no floor: put it into the table of pkg/floors_test.go",
		}},
	} {
		if got := breaches(test.packs, house); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, test.want)
		}
	}
}

// The agent runs on every node, and talks to no API server. Nor does devinfoctl, and it judges no device: what
// the rules make of them the driver has left for it. Either would be a third of it.
func TestProgramsDoWithoutWhatIsDear(t *testing.T) {
	watch(t)
	for program, denied := range map[string][]string{
		"../cmd/devinfo-agent": {"k8s.io/client-go", "k8s.io/apimachinery", "k8s.io/api/", "sigs.k8s.io/", module + "pkg/dra"},
		"../cmd/devinfoctl":    {"k8s.io/client-go", "k8s.io/apiserver", "github.com/google/cel-go", module + "pkg/dra/devices/inventory"},
	} {
		for path := range strings.FieldsSeq(string(goList(t, program, "-deps", "."))) {
			if slices.ContainsFunc(denied, func(dear string) bool { return strings.HasPrefix(path, dear) }) {
				t.Errorf("%s imports %s", program, path)
			}
		}
	}
}

// Whoever reads device-info files should be able to import the library without
// asking what comes with it: no package and, for the versions of a stranger's own
// modules, no module either. Its tests are held to the same.
func TestTheLibraryNeedsTheStandardLibraryOnly(t *testing.T) {
	watch(t)
	if got := strings.Fields(string(goList(t, "../devinfo", "-m", "all"))); !reflect.DeepEqual(got, []string{module + "devinfo"}) {
		t.Errorf("its modules are %q", got)
	}
	foreign := strings.Fields(string(goList(t, "../devinfo", "-deps", "-test", "-f", "{{if not (or .Standard .ForTest)}}{{.ImportPath}}{{end}}", "./...")))
	if !slices.Contains(foreign, "devinfo-cni.io/devinfo/store") {
		t.Fatalf("go list gives %q", foreign)
	}
	for _, path := range foreign {
		if !strings.HasPrefix(path, module+"devinfo") {
			t.Errorf("it imports %s", path)
		}
	}
}

// CONTRIBUTING.md has a word on every package, and names none that is not there.
func TestContributingNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:cmd|pkg|plugins|devinfo)(?:/[a-z0-9/-]+)?)`").FindAllStringSubmatch(string(text), -1) {
		named[m[1]] = true
	}
	there := map[string]bool{"pkg": true}
	for _, p := range listed(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if there[name] = true; len(p.GoFiles) > 0 && !strings.HasPrefix(name, outside) && !named[name] {
			t.Errorf("CONTRIBUTING.md: %s is missing: say in \"Where things are\" what it is for", name)
		}
	}
	for name := range named {
		if !there[name] {
			t.Errorf("CONTRIBUTING.md: %s is not a package", name)
		}
	}
}
