package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the README says that devinfoctl prints is what it prints.
func TestREADMEShowsWhatTheCommandsPrint(t *testing.T) {
	t.Chdir("../..") // where its reader is
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end, prompt = "```console\n", "```\n", "$ devinfoctl "
	var now strings.Builder
	played, rest := 0, string(text)
	for {
		before, block, found := strings.Cut(rest, begin)
		now.WriteString(before)
		if !found {
			break
		}
		now.WriteString(begin)
		block, rest, _ = strings.Cut(block, end)
		for line := range strings.Lines(block) {
			if command, ok := strings.CutPrefix(line, prompt); ok {
				played++
				now.WriteString(line + ctl(strings.Fields(command)...).stdout)
			}
		}
		now.WriteString(end)
	}
	if played < 4 {
		t.Errorf("it shows %d commands", played)
	}
	if *update {
		if err := os.WriteFile("README.md", []byte(now.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(string(text), now.String()); diff != "" {
		t.Errorf("(-README +now):\n%s", diff)
	}
}
