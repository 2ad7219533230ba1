package pkg_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"devinfo-cni.io/test/difftest"
)

func TestPagesOfBothAgentsListExactlyTheirFlags(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	difftest.Must(t, err)
	for source, paths := range map[string][]string{"devinfo-agent/main.go": pages, "cni-dra-driver/main.go": {"../docs/dra"}} {
		code, text := difftest.Read(t, "../cmd/"+source), strings.Join(difftest.Pages(t, paths...), "\n")
		var flags, documented []string
		for _, defined := range regexp.MustCompile(`\tf\.\w+Var\w*\([^"]*"([a-z-]+)"`).FindAllStringSubmatch(code, -1) {
			flags = append(flags, defined[1])
		}
		for _, row := range regexp.MustCompile("(?m)^\\| `-.*?` \\|").FindAllString(text, -1) {
			for _, named := range regexp.MustCompile("`--?([a-z-]+)`").FindAllStringSubmatch(row, -1) {
				documented = append(documented, named[1])
			}
		}
		slices.Sort(flags)
		slices.Sort(documented)
		if len(flags) < 20 || !slices.Equal(flags, slices.Compact(documented)) {
			t.Errorf("%s defines\n%q, and the pages have\n%q", source, flags, documented)
		}
	}
}

// The page contains the go.mod and main.go of a program outside of this repository.
func TestProgramInLibraryPageCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it builds a program")
	}
	page := difftest.Read(t, "../docs/library.md")
	clone, err := filepath.Abs("..")
	difftest.Must(t, err)
	dir := t.TempDir()
	for name, begin := range map[string]string{"go.mod": "```\nmodule ", "main.go": "```go\npackage "} {
		_, text, _ := strings.Cut(page, begin)
		text, _, _ = strings.Cut(text, "```")
		_, word, _ := strings.Cut(begin, "\n")
		text = strings.Replace(word+text, "=> ../devinfo/", "=> "+clone+"/", 1)
		difftest.Write(t, filepath.Join(dir, name), text, 0o600)
	}
	for _, line := range []string{"go build -o program .", "go mod vendor", "go build -mod=vendor -o program ."} {
		cmd := exec.Command("go", strings.Fields(line)[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOPROXY=off", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
}

func TestDocumentsNameExistingTests(t *testing.T) {
	named, declared := map[string]string{}, map[string]bool{"TestDelRemovesFileOfFailedAdd": true} // CONTRIBUTING's example
	name := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w{5,}`)
	for _, path := range sources(t, ".md", ".go") {
		isDocument := strings.HasSuffix(path, ".md")
		if !isDocument && !strings.HasSuffix(path, "_test.go") {
			continue
		}
		for line := range strings.Lines(difftest.Read(t, path)) {
			for _, found := range name.FindAllString(line, -1) {
				if isDocument {
					named[found] = path
				} else if strings.HasPrefix(line, "func ") {
					declared[found] = true
				}
			}
		}
	}
	for test, path := range named {
		if !declared[test] {
			t.Errorf("%s names %s, which does not exist", path, test)
		}
	}
}

func TestDocumentsNameExistingTargetsAndFiles(t *testing.T) {
	rules := difftest.Read(t, "../Makefile")
	for _, path := range difftest.Files(t, "../deploy", "../test") {
		if filepath.Ext(path) == ".mk" {
			rules += difftest.Read(t, path)
		}
	}
	file := regexp.MustCompile(`(?:^|[ (])((?:deploy|test|testdata|docs)/[\w./-]*\w)`)
	for _, args := range difftest.Commands(t, "make", "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../docs", "../test") {
		if slices.Equal(args, []string{"images", "push", "manifests"}) {
			continue // of KubeVirt's vdpa-network-binding-plugin
		}
		for _, word := range args {
			if !strings.Contains(word, "=") && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(word)+`:`).MatchString(rules) {
				t.Errorf("make %s: there is no target %s", strings.Join(args, " "), word)
			}
		}
	}
	for _, page := range difftest.Pages(t, "../README.md", "../docs") {
		for _, code := range regexp.MustCompile("(?s)```.*?```|`[^`]+`").FindAllString(page, -1) {
			for _, named := range file.FindAllStringSubmatch(strings.Trim(code, "`"), -1) {
				if _, err := os.Stat("../" + named[1]); err != nil && !strings.Contains(named[1], "/NAME.") {
					t.Error(err)
				}
			}
		}
	}
}

func TestWorkflowsRunScriptsOfRepository(t *testing.T) {
	makefile := difftest.Read(t, "../Makefile")
	for name, event := range map[string]string{"test": "pull_request", "nightly": "schedule"} {
		var w struct {
			Name        string         `json:"name"`
			On          map[string]any `json:"true"` // YAML 1.1 reads "on" so
			Permissions struct{ Contents string }
			Concurrency map[string]any
			Jobs        map[string]struct {
				RunsOn  string `json:"runs-on"`
				Minutes int    `json:"timeout-minutes"`
				Steps   []struct {
					Uses string
					With map[string]any
					Run  string
					Env  map[string]string
				}
			}
		}
		text := difftest.Read(t, "../.github/workflows/"+name+".yaml")
		difftest.Must(t, yaml.UnmarshalStrict([]byte(text), &w)) // GitHub reports a misspelled key only on its page
		if _, ok := w.On[event]; !ok || w.Permissions.Contents != "read" {
			t.Errorf("%s: runs on %v with the permission %q", name, w.On, w.Permissions.Contents)
		}
		ran := 0
		for job, j := range w.Jobs {
			for _, step := range j.Steps {
				if step.Uses != "" && !regexp.MustCompile(`@[0-9a-f]{40}$`).MatchString(step.Uses) {
					t.Errorf("%s: %s uses %s, which is not pinned by its digest", name, job, step.Uses)
				}
				for _, script := range regexp.MustCompile(`\.ci/\w+`).FindAllString(step.Run, -1) {
					_, err := os.Stat("../" + script)
					difftest.Must(t, err)
					ran++
				}
				if _, verbs, ok := strings.Cut(step.Run, "make "); ok {
					for verb := range strings.FieldsSeq(verbs) {
						if !strings.Contains(verb, "=") && !regexp.MustCompile(`(?m)^`+verb+`:`).MatchString(makefile) {
							t.Errorf("%s: %s runs make %s, which does not exist", name, job, verb)
						}
						ran++
					}
				}
			}
		}
		if ran < 2 || !strings.Contains(text, "go-version-file: go.mod") {
			t.Errorf("%s runs %d scripts", name, ran)
		}
	}
}
