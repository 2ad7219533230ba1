package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// poison has characters that a terminal obeys.
const poison = difftest.Unprintable

// Names of pods, networks and files come from others, and arguments from anywhere.
func TestTextsFromOutsideDoNotReachTerminalRaw(t *testing.T) {
	encoded, err := json.Marshal(poison)
	difftest.Must(t, err)
	inJSON := strings.Trim(string(encoded), `"`)
	capture := filepath.Join(t.TempDir(), "host.txtar")
	difftest.Write(t, capture, strings.ReplaceAll(difftest.Read(t, nodeHost), "dpdk-0", "dpdk-0"+inJSON), 0o600)
	t.Chdir(t.TempDir())
	difftest.Write(t, "f"+poison, `{"type": "pci`+inJSON+`"}`, 0o600)
	for _, line := range []string{
		"list", "list -o json", "check", "check -o yaml", "doctor", "doctor -o json", "topology", "topology -o json", "gc --dry-run", "offered", "inspect 0000:03:00.3", "__complete list",
		"inspect X", "inspect eth0 --netns X", "list X", "check X", "topology X", "list -n X", "X", "list --X", "list X X", "validate X", "validate fX", "validate fX -o json", "validate fX X --kind X",
		"validate fX --cni-path X", "gc --dry-run --claim X", "--node-config X list", "--dra-state-dir X list", "capture -o X/y", "install --cni-bin-dir X", "--host-root X list",
	} {
		args := strings.Fields(strings.ReplaceAll(line, "X", poison))
		if printsNothingRaw(t, append([]string{"--capture", capture}, args...)...); strings.Contains(line, "X") {
			printsNothingRaw(t, args...)
		}
	}
	printsNothingRaw(t, "--capture", poison, "list")
}

// printsNothingRaw runs a command and checks its output.
func printsNothingRaw(t *testing.T, args ...string) {
	t.Helper()
	o := ctl(args...)
	difftest.NotRaw(t, strings.Join(args, " "), o.stdout+o.stderr)
	if slices.Contains(args, "json") && o.stdout != "" && !json.Valid([]byte(o.stdout)) {
		t.Errorf("%q prints invalid JSON: %q", args, o.stdout)
	}
}
