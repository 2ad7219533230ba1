package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

const hosts = "../../testdata/hosts/"

type outcome struct {
	stdout, stderr string
	exit           int
}

func ctl(args ...string) outcome {
	var stdout, stderr bytes.Buffer
	exit := run(args, strings.NewReader(""), &stdout, &stderr)
	return outcome{stdout.String(), stderr.String(), exit}
}

// golden runs the program and compares its output and exit code with testdata/golden/<name>.txt.
func golden(t *testing.T, name string, args ...string) {
	t.Helper()
	o := ctl(args...)
	got := fmt.Sprintf("$ devinfoctl %s\n%s", strings.Join(args, " "), o.stdout)
	if o.stderr != "" {
		got += "-- stderr --\n" + o.stderr
	}
	goldentest.File(t, "testdata/golden/"+name+".txt", fmt.Sprintf("%s-- exit %d --\n", got, o.exit))
}

// The examples in the documentation are the output of the commands.
func TestDocumentationShowsCommandOutput(t *testing.T) {
	t.Chdir("../..") // the examples are run in the repository's root
	all := 0
	for _, path := range difftest.Files(t, "README.md", "docs") {
		if filepath.Ext(path) == ".md" {
			now, played := replay(difftest.Read(t, path))
			goldentest.File(t, path, now)
			all += played
		}
	}
	if all < 3 {
		t.Errorf("the pages show %d commands", all)
	}
}

// The pages show the VF of a capture as network-status and a container have it.
func TestPagesShowDeviceOfCapture(t *testing.T) {
	const readme, pods = "../../README.md", "../../docs/pods.md"
	file, _, _ := strings.Cut(ctl("--capture", nodeHost, "inspect", "0000:03:00.4").stdout, "\n\n")
	info, err := devinfo.Parse([]byte(file))
	difftest.Must(t, err)
	environ := slices.Concat([]string{"DEVINFO_NET1=" + cdispec.InfoFile("net1")}, cdispec.Variables("DEVINFO_NET1", info, nil),
		[]string{cdispec.RDMADevices([]*devinfo.Info{info})})
	for _, page := range []string{readme, pods} {
		difftest.Contains(t, difftest.Block(t, page, "console", "DEVINFO_NET1_TYPE"), strings.Join(environ, "\n"))
	}
	difftest.Contains(t, difftest.Block(t, pods, "console", "DEVINFO_NET1_TYPE"), file)
	var after strings.Builder
	for line := range strings.Lines(difftest.Block(t, readme, "diff", "device-info")) {
		if line[0] != '-' {
			after.WriteString(line[1:])
		}
	}
	var status map[string]*devinfo.Info
	difftest.Must(t, json.Unmarshal([]byte("{"+after.String()+"}"), &status))
	difftest.Same(t, "device-info in README.md", string(status["device-info"].Encode()), string(info.Encode()))
}

// A page's networks, classes and claims are valid together.
func TestConfigurationsInDocumentationAreValid(t *testing.T) {
	whole := regexp.MustCompile(`(?m)^( *\{"cniVersion"|kind: (NetworkAttachmentDefinition|DeviceClass|ResourceClaim(Template)?|SriovNetwork)$)`)
	removed, added := regexp.MustCompile(`(?m)^-.*\n`), regexp.MustCompile(`(?m)^[+ ]`)
	seen := 0
	for _, page := range difftest.Files(t, "../../README.md", "../../docs") {
		if filepath.Ext(page) != ".md" {
			continue
		}
		args := []string{"validate", "--strict", "--cni-path", filepath.Join(t.TempDir(), "none")}
		for n, block := range strings.Split(difftest.Read(t, page), "```") {
			language, text, _ := strings.Cut(block, "\n")
			switch language {
			case "diff":
				text = added.ReplaceAllString(removed.ReplaceAllString(text, ""), "")
			case "sh":
				_, text, _ = strings.Cut(text, "<<'END'\n")
				text, _, _ = strings.Cut(text, "\nEND")
			case "console":
				continue
			}
			if n%2 == 1 && whole.MatchString(text) {
				path := filepath.Join(t.TempDir(), fmt.Sprint(n))
				difftest.Write(t, path, strings.ReplaceAll(text, ", ...", ""), 0o600)
				args = append(args, path)
				seen++
			}
		}
		if got := ctl(args...); len(args) > 4 && got.exit != 0 {
			t.Errorf("%s: %+v", page, got)
		}
	}
	if seen < 15 {
		t.Errorf("%d configurations", seen)
	}
}

func TestCommandsInDocumentationExist(t *testing.T) {
	for _, args := range difftest.Commands(t, "devinfoctl", "../../README.md", "../../SECURITY.md", "../../docs") {
		if got := ctl(append(args, "--help")...); got.exit != 0 {
			t.Errorf("devinfoctl %s: %s", strings.Join(args, " "), got.stderr)
		}
	}
	for _, page := range difftest.Pages(t, "../../README.md", "../../SECURITY.md", "../../docs") { // it deletes every attachment
		difftest.Lacks(t, strings.ReplaceAll(page, "**Do not run `cnitool gc`**", ""), "cnitool gc")
	}
}

// replay replaces the output of each devinfoctl command in a text with its present output. It also returns the number
// of commands.
func replay(text string) (string, int) {
	const begin, end, prompt = "```console\n", "```\n", "$ devinfoctl --capture "
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
		if !strings.Contains(block, prompt) {
			now.WriteString(block)
		}
		for line := range strings.Lines(block) {
			if command, ok := strings.CutPrefix(line, prompt); ok {
				played++
				now.WriteString(line + ctl(append([]string{"--capture"}, strings.Fields(command)...)...).stdout)
			}
		}
		now.WriteString(end)
	}
}

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
// the host. The section "HOST NAME" replaces node.txtar by a captured host.
func TestCommandsPrintRecordedOutput(t *testing.T) {
	goldentest.Archives(t, "testdata/golden/*.txtar", func(t *testing.T, archive *txtar.Archive) {
		host, files := changedHost(t, archive.Files)
		dir := t.TempDir()
		for _, f := range files {
			difftest.Must(t, os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o644))
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

// changedHost applies the host's sections to node.txtar or a captured host. It returns the path of the result, and the other sections.
func changedHost(t *testing.T, sections []txtar.File) (path string, rest []txtar.File) {
	t.Helper()
	file := nodeHost
	if name, ok := strings.CutPrefix(sections[0].Name, "HOST "); ok {
		file, sections = hosts+name+".txtar", sections[1:]
	}
	host, err := txtar.ParseFile(file)
	difftest.Must(t, err)
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
	difftest.Must(t, os.WriteFile(path, txtar.Format(host), 0o644))
	return path, rest
}
