package pkg_test

import (
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// declared returns the names of a file's types and functions. A method is "Type.Method".
func declared(t *testing.T, path string) (names []string) {
	t.Helper()
	for _, decl := range parsed(t, token.NewFileSet(), path).Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			names = append(names, receiver(d)+d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					names = append(names, s.Name.Name)
				}
			}
		}
	}
	return names
}

func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	return of.(*ast.Ident).Name + "."
}

const architecture = "../docs/architecture.md"

func TestArchitectureLinksToFilesThatDeclareTheFunction(t *testing.T) {
	links := regexp.MustCompile(`\[([\w.]+)\]\(\.\./([\w/-]+\.go)\)`).FindAllStringSubmatch(difftest.Read(t, architecture), -1)
	count := 0
	for _, link := range links {
		name, path := link[1], link[2]
		if strings.HasSuffix(name, ".go") {
			continue
		}
		count++
		if !slices.Contains(declared(t, "../"+path), name) {
			t.Errorf("%s is not declared in %s", name, path)
		}
	}
	if count < 20 {
		t.Errorf("docs/architecture.md links to only %d functions", count)
	}
}

// opens lists the functions that open or change files, by package.
var opens = map[string][]string{
	"os": {"Open", "OpenFile", "OpenRoot", "DirFS", "Create", "CreateTemp", "ReadFile", "ReadDir", "Readlink", "Stat", "Lstat",
		"WriteFile", "Mkdir", "MkdirAll", "MkdirTemp", "Remove", "RemoveAll", "Rename", "Link", "Symlink", "Chmod", "Chown"},
	"atomicfile": {"ReadFile"},
	"unix":       {"Open", "Openat", "Openat2", "Mkdirat", "Unlinkat", "Renameat", "Renameat2", "Linkat", "Readlinkat", "Fstatat", "Mknod"},
}

// opensFiles reports whether a source file uses a function in opens.
func opensFiles(t *testing.T, path string) (does bool) {
	t.Helper()
	ast.Inspect(parsed(t, token.NewFileSet(), path), func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && slices.Contains(opens[x.Name], s.Sel.Name) {
				does = true
			}
		}
		return !does
	})
	return does
}

func TestArchitectureListsExactlyThePackagesThatOpenFiles(t *testing.T) {
	var table []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([\\w/-]+)` \\|").FindAllStringSubmatch(difftest.Read(t, architecture), -1) {
		if slices.Contains(table, row[1]) {
			t.Errorf("%s is in the table of docs/architecture.md twice", row[1])
		}
		table = append(table, row[1])
	}
	found := map[string]bool{}
	for _, path := range sources(t, ".go") {
		root, _, _ := strings.Cut(folder(path), "/")
		if slices.Contains([]string{"pkg", "plugins", "devinfo"}, root) && !isTest(path) && opensFiles(t, path) {
			found[folder(path)] = true
		}
	}
	for name := range found {
		if !slices.Contains(table, name) {
			t.Errorf("%s opens files, but is not in the table of docs/architecture.md", name)
		}
	}
	for _, name := range table {
		if !found[name] {
			t.Errorf("%s is in the table of docs/architecture.md, but does not open files", name)
		}
	}
}

func TestPagesOfBothAgentsListExactlyTheirFlags(t *testing.T) {
	for source, page := range map[string]string{"devinfo-agent/flags.go": "agent.md", "cni-dra-driver/flags.go": "dra/README.md"} {
		code, text := difftest.Read(t, "../cmd/"+source), difftest.Read(t, "../docs/"+page)
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
			t.Errorf("%s defines\n%q, and %s has\n%q", source, flags, page, documented)
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
