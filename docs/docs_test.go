// Package docs holds what these pages show of the programs to what those print.
package docs

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the pages as they should be")

func TestThePagesShowWhatTheCommandsPrint(t *testing.T) {
	program := filepath.Join(t.TempDir(), "devinfoctl")
	if out, err := exec.Command("go", "build", "-o", program, "devinfo-cni.io/cmd/devinfoctl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("..") // where their reader is
	played := 0
	for _, page := range pages {
		path := filepath.Join("docs", page)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		now, n := play(t, string(text), program)
		played += n
		if *update {
			if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if diff := cmp.Diff(string(text), now); diff != "" {
			t.Errorf("%s: go test ./docs -update writes it anew; then read it (-page +now)\n%s", page, diff)
		}
	}
	if played < 3 {
		t.Errorf("the pages show %d commands", played)
	}
}

// play gives a page with what its commands print now, and how many there are.
func play(t *testing.T, page, program string) (string, int) {
	t.Helper()
	const begin, end, prompt = "```console\n", "```\n", "$ devinfoctl "
	var now strings.Builder
	played := 0
	for {
		before, rest, found := strings.Cut(page, begin)
		now.WriteString(before)
		if !found {
			return now.String(), played
		}
		now.WriteString(begin)
		block, after, _ := strings.Cut(rest, end)
		for line := range strings.Lines(block) {
			if command, ok := strings.CutPrefix(line, prompt); ok {
				played++
				out, _ := exec.Command(program, strings.Fields(command)...).Output() // what fails prints less
				now.WriteString(line + string(out))
			}
		}
		now.WriteString(end)
		page = after
	}
}
