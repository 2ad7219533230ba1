// Package goldentest compares with files what tests find. With the flag -update the files are
// written anew; then read the difference with care.
package goldentest

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/difftest"
)

// Update is the flag -update.
var Update = flag.Bool("update", false, "write anew what the golden files expect; then read the difference with care")

// File compares got with the content of a file.
func File(t *testing.T, path, got string) {
	t.Helper()
	if *Update {
		difftest.Write(t, path, got, 0o644)
		return
	}
	difftest.Same(t, path+": -update writes it anew, if the difference is right", got, difftest.Read(t, path))
}

// Archives calls play with each archive that the pattern names, in a subtest of its own. With -update
// the archive is written as play has changed it.
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

// Section compares got with a section of an archive, or with -update replaces it.
func Section(t *testing.T, section *txtar.File, got string) {
	t.Helper()
	if *Update {
		section.Data = []byte(got)
		return
	}
	difftest.Same(t, section.Name, got, string(section.Data))
}
