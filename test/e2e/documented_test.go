//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// content is that of a file of the repository.
func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	must(t, err)
	return string(text)
}

// newDir makes a directory in another, "" = /tmp, until the end of the test. Those in /tmp are the
// node's, too; t.TempDir has the test's name.
func newDir(t *testing.T, in string) string {
	t.Helper()
	dir, err := os.MkdirTemp(in, "e2e-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// binary is the path of a program that was built, here and on a node that has our files.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin", name))
	must(t, err)
	return path
}

// documented are the first commands below a heading of a file in docs.
func documented(t *testing.T, file, heading string) string {
	t.Helper()
	return block(t, file, "\n"+heading+"\n", "sh")
}

// block is the first one in a language that is after a text in a file of docs.
func block(t *testing.T, file, after, language string) string {
	t.Helper()
	const fence = "```"
	_, section, ok := strings.Cut(content(t, "docs/"+file), after)
	_, section, shown := strings.Cut(section, fence+language+"\n")
	content, _, closed := strings.Cut(section, fence)
	if !ok || !shown || !closed {
		t.Fatalf("docs/%s has no block of %s after %q", file, language, after)
	}
	return content
}
