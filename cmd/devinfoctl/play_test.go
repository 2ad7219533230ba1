package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/goldentest"
)

// nodeHost is the host on which the commands in the documentation run.
const nodeHost = "testdata/node.txtar"

// seen returns the output as a terminal shows it. Each line of standard error begins with "!".
func (o outcome) seen() string {
	var b strings.Builder
	b.WriteString(o.stdout)
	for line := range strings.Lines(o.stderr) {
		b.WriteString("! " + line)
	}
	if o.exit != 0 {
		fmt.Fprintf(&b, "exit %d\n", o.exit)
	}
	return b.String()
}

// Each file has command lines with their output. The sections before them are files: files of the host replace the
// files in node.txtar, and other files are put into the working directory. A section "gone NAME" removes a file from
// the host.
func TestCommandsPrintRecordedOutput(t *testing.T) {
	goldentest.Archives(t, "testdata/golden/*.txtar", func(t *testing.T, archive *txtar.Archive) {
		host, files := changedHost(t, archive.Files)
		dir := t.TempDir()
		for _, f := range files {
			must(t, os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o644))
		}
		t.Chdir(dir)
		played := 0
		for n := range archive.Files {
			f := &archive.Files[n]
			if line, ok := strings.CutPrefix(f.Name, "devinfoctl "); ok {
				played++
				got := ctl(append([]string{"--capture", host}, strings.Fields(line)...)...).seen()
				goldentest.Section(t, f, strings.ReplaceAll(got, host, "HOST"))
			}
		}
		if played == 0 {
			t.Error("no command line")
		}
	})
}

// changedHost applies the host's sections to node.txtar. It returns the path of the result, and the other sections.
func changedHost(t *testing.T, sections []txtar.File) (path string, rest []txtar.File) {
	t.Helper()
	host, err := txtar.ParseFile(nodeHost)
	must(t, err)
	remove := func(name string) bool {
		before := len(host.Files)
		name, _, _ = strings.Cut(name, " -> ")
		host.Files = slices.DeleteFunc(host.Files, func(f txtar.File) bool {
			have, _, _ := strings.Cut(f.Name, " -> ")
			return have == name
		})
		return len(host.Files) < before
	}
	for _, f := range sections {
		top, _, below := strings.Cut(f.Name, "/")
		name, gone := strings.CutPrefix(f.Name, "gone ")
		switch {
		case strings.HasPrefix(f.Name, "devinfoctl "):
		case gone:
			if !remove(name) {
				t.Fatalf("the host has no %s", name)
			}
		case below && slices.Contains([]string{"root", "sys", "netlink", "node"}, top):
			remove(f.Name)
			host.Files = append(host.Files, f)
		default:
			rest = append(rest, f)
		}
	}
	path = filepath.Join(t.TempDir(), "host.txtar")
	must(t, os.WriteFile(path, txtar.Format(host), 0o644))
	return path, rest
}
