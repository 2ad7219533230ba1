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
	const fence = "```"
	_, section, ok := strings.Cut(docs(t, file), "\n"+heading+"\n")
	_, section, shown := strings.Cut(section, fence+"sh\n")
	commands, _, closed := strings.Cut(section, fence)
	if !ok || !shown || !closed {
		t.Fatalf("docs/%s has no %q with commands", file, heading)
	}
	return commands
}
