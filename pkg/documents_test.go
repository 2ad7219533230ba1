package pkg_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

func TestPagesOfBothAgentsListExactlyTheirFlags(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	difftest.Must(t, err)
	for source, paths := range map[string][]string{"devinfo-agent/flags.go": pages, "cni-dra-driver/flags.go": {"../docs/dra"}} {
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
