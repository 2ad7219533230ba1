package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the documentation says that devinfoctl prints is what it prints.
func TestTheDocumentationShowsWhatTheCommandsPrint(t *testing.T) {
	t.Chdir("../..") // where its reader is
	for path, commands := range map[string]int{"README.md": 1, "docs/debugging.md": 4} {
		text, err := os.ReadFile(path)
		must(t, err)
		now, played := replay(string(text))
		if played < commands {
			t.Errorf("%s shows %d commands", path, played)
		}
		if *update {
			must(t, os.WriteFile(path, []byte(now), 0o644))
		} else if diff := cmp.Diff(string(text), now); diff != "" {
			t.Errorf("%s (-shown +now):\n%s", path, diff)
		}
	}
}

func TestTheNetworksOfTheREADMEAreValid(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	must(t, err)
	networks := 0
	for _, block := range strings.Split(string(text), "```json\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(block, `"plugins"`) {
			continue // a device-info file
		}
		networks++
		path := filepath.Join(t.TempDir(), "network.conflist")
		must(t, os.WriteFile(path, []byte(block), 0o600))
		if got := ctl("validate", "--strict", "--cni-path", filepath.Join(t.TempDir(), "none"), path); got.exit != 0 {
			t.Errorf("%s%+v", block, got)
		}
	}
	if networks != 2 {
		t.Errorf("%d networks", networks)
	}
}

// replay puts what the commands print now into the text that shows them.
func replay(text string) (string, int) {
	const begin, end, prompt = "```console\n", "```\n", "$ devinfoctl "
	var now strings.Builder
	played := 0
	for {
		before, block, found := strings.Cut(text, begin)
		now.WriteString(before)
		if !found {
			return now.String(), played
		}
		now.WriteString(begin)
		block, text, _ = strings.Cut(block, end)
		for line := range strings.Lines(block) {
			if command, ok := strings.CutPrefix(line, prompt); ok {
				played++
				now.WriteString(line + ctl(strings.Fields(command)...).stdout)
			}
		}
		now.WriteString(end)
	}
}

// cnitool's gc names no valid attachment, and libcni then deletes all in its cache, live
// ones too: TestCnitoolGCDeletesOnlyItsOwn shows it. Nobody must be led to run it.
func TestTheDocumentationWarnsOfCnitoolGC(t *testing.T) {
	paths, err := filepath.Glob("../../docs/*.md")
	must(t, err)
	warned := false
	for _, path := range append(paths, "../../README.md") {
		text, err := os.ReadFile(path)
		must(t, err)
		for paragraph := range strings.SplitSeq(string(text), "\n\n") {
			if !strings.Contains(paragraph, "cnitool gc") {
				continue
			}
			if warned = strings.Contains(paragraph, "**Do not run `cnitool gc`"); !warned {
				t.Errorf("%s offers cnitool gc:\n%s", path, paragraph)
			}
		}
	}
	if !warned {
		t.Error("no document warns of cnitool gc")
	}
}
