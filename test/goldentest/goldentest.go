// Package goldentest compares results of tests with files. With the flag -update it rewrites the files instead;
// review the difference afterwards.
package goldentest

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/test/difftest"
)

// Update is the flag -update.
var Update = flag.Bool("update", false, "rewrite the golden files; review the difference afterwards")

// File compares got with the content of a file, or rewrites it with -update.
func File(t *testing.T, path, got string) {
	t.Helper()
	if *Update {
		difftest.Write(t, path, got, 0o644)
		return
	}
	difftest.Same(t, path+": if the difference is right, rewrite the file with -update", got, difftest.Read(t, path))
}

// Archives calls play in a subtest for each archive that matches the pattern. With -update it writes the archive as
// play has changed it.
func Archives(t *testing.T, pattern string, play func(t *testing.T, archive *txtar.Archive)) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no archive %s: %v", pattern, err)
	}
	for _, path := range paths {
		path, err := filepath.Abs(path) // play may change the working directory
		difftest.Must(t, err)
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			difftest.Must(t, err)
			play(t, archive)
			if *Update {
				difftest.Write(t, path, string(txtar.Format(archive)), 0o644)
			}
		})
	}
}

// Section compares got with a section of an archive, or replaces the section with -update.
func Section(t *testing.T, section *txtar.File, got string) {
	t.Helper()
	if *Update {
		section.Data = []byte(got)
		return
	}
	difftest.Same(t, section.Name, got, string(section.Data))
}

// Lines compares a file of inputs, each on a line of its own with its indented output below it, with what play returns for
// the inputs. A line that begins with # is a comment.
func Lines(t *testing.T, path string, play func(input string) (output []string)) {
	t.Helper()
	var now strings.Builder
	for line := range strings.Lines(difftest.Read(t, path)) {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		now.WriteString(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		for _, output := range play(strings.TrimSuffix(line, "\n")) {
			now.WriteString("  " + output + "\n")
		}
	}
	File(t, path, now.String())
}
