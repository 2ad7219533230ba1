//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// docs is a file of the documentation.
func docs(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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
	_, section, ok := strings.Cut(docs(t, file), after)
	_, section, shown := strings.Cut(section, fence+language+"\n")
	content, _, closed := strings.Cut(section, fence)
	if !ok || !shown || !closed {
		t.Fatalf("docs/%s has no block of %s after %q", file, language, after)
	}
	return content
}
