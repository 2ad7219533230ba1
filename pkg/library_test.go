package pkg_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program outside of this repository can require the library as docs/library.md says.
func TestTheDocumentedProgramCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it builds a program")
	}
	page, err := os.ReadFile("../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	clone, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, begin := range map[string]string{"go.mod": "```\nmodule ", "main.go": "```go\npackage "} {
		_, text, _ := strings.Cut(string(page), begin)
		text, _, _ = strings.Cut(text, "```")
		_, word, _ := strings.Cut(begin, "\n")
		text = strings.Replace(word+text, "=> ../devinfo/", "=> "+clone+"/", 1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{"go build -o program .", "go mod vendor", "go build -mod=vendor -o program ."} {
		cmd := exec.Command("go", strings.Fields(line)[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOPROXY=off", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
}
