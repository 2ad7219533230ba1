package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/capturefile/capturetest"
	"devinfo-cni.io/pkg/check/checktest"
	"devinfo-cni.io/pkg/ctl/clierr"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/goldentest"
	"devinfo-cni.io/pkg/journal"
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

// BenchmarkCrowded measures the commands on a node with 10,000 attachments.
func BenchmarkCrowded(b *testing.B) {
	const gate = 2 * time.Second
	dir, err := os.MkdirTemp("/dev/shm", "crowded") // on tmpfs, like /run
	if err != nil {
		dir = b.TempDir()
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	n := newNodeIn(b, dir, filepath.Join(dir, "sys"))
	n.must(capturetest.ManyVFs(1000).Unpack(n.Sysfs))
	boot, err := journal.BootID()
	n.must(err)
	checktest.Crowd(b, n.Node, boot, aliveNetns, 1000, 10000)
	for name, args := range map[string]string{
		"doctor": "doctor --cni-path " + n.bin + " --cni-conf-dir " + n.bin + " --pod-resources /nowhere --sriov-locks /nowhere",
		"check":  "check", "list": "list", "pod": "check ns/pod7",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if o := ctl(append([]string{"--node-config", n.file}, strings.Fields(args)...)...); o.exit == clierr.Blind {
					b.Fatal(o.stderr)
				}
			}
			if each := b.Elapsed() / time.Duration(b.N); each > gate {
				b.Errorf("%v, more than %v", each, gate)
			}
		})
	}
}

// The examples in the documentation are the output of the commands.
func TestDocumentationShowsCommandOutput(t *testing.T) {
	t.Chdir("../..") // the examples are run in the repository's root
	for path, commands := range map[string]int{"README.md": 1, "docs/debugging.md": 4} {
		now, played := replay(difftest.Read(t, path))
		if played < commands {
			t.Errorf("%s shows %d commands", path, played)
		}
		goldentest.File(t, path, now)
	}
}

func TestNetworksInREADMEAreValid(t *testing.T) {
	networks := 0
	for _, block := range strings.Split(difftest.Read(t, "../../README.md"), "```json\n")[1:] {
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
	if networks != 1 {
		t.Errorf("%d networks", networks)
	}
}

// replay replaces the output of each devinfoctl command in a text with its present output. It also returns the number
// of commands.
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

// cnitool's gc passes an empty list of valid attachments, so libcni deletes every attachment in its cache, live ones
// too. The documentation must not recommend it.
func TestDocumentationWarnsOfCnitoolGC(t *testing.T) {
	difftest.Contains(t, difftest.Read(t, "../../docs/debugging.md"), "cnitool gc")
	for _, path := range append(difftest.Files(t, "../../docs"), "../../README.md") {
		for paragraph := range strings.SplitSeq(difftest.Read(t, path), "\n\n") {
			if strings.Contains(paragraph, "cnitool gc") {
				difftest.Contains(t, paragraph, "**Do not run `cnitool gc`")
			}
		}
	}
}
