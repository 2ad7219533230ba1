package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/test/difftest"
)

// poisoner appends characters that a terminal obeys to each other string of JSON, and adds such keys.
type poisoner struct{ turn, seen int }

const poison = difftest.Unprintable

func (p *poisoner) value(v any) any {
	switch is := v.(type) {
	case string:
		if p.seen++; p.seen%2 == p.turn {
			return is + poison
		}
	case []any:
		for n := range is {
			is[n] = p.value(is[n])
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(is)) {
			is[key] = p.value(is[key])
		}
		if p.turn == 0 {
			is["k"+poison] = poison
		}
	}
	return v
}

func (p *poisoner) text(text []byte) []byte {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return []byte(strings.TrimRight(string(text), "\n") + "\u202e\u2066" + "\n") // YAML allows no control characters
	}
	text, _ = json.Marshal(p.value(v)) // decoded from JSON
	return text
}

// The commands of all golden files print texts of poisoned files, captures and names, in each format.
func TestTextsFromOutsideDoNotReachTerminalRaw(t *testing.T) {
	archives, err := filepath.Glob("testdata/golden/*.txtar")
	difftest.Must(t, err)
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		difftest.Must(t, err)
		for turn, format := range []string{"json", "yaml"} {
			t.Run(name, func(t *testing.T) {
				p := &poisoner{turn: turn}
				path, files := changedHost(t, archive.Files)
				host, err := txtar.ParseFile(path)
				difftest.Must(t, err)
				for n := range host.Files {
					if f := &host.Files[n]; !strings.HasPrefix(f.Name, "sys/") && !strings.Contains(f.Name, " -> ") {
						f.Data = p.text(f.Data)
					}
				}
				difftest.Must(t, os.WriteFile(path, txtar.Format(host), 0o644))
				t.Chdir(t.TempDir())
				for _, f := range files {
					difftest.Must(t, os.WriteFile(f.Name, p.text(f.Data), 0o644))
				}
				for _, f := range archive.Files {
					if line, ok := strings.CutPrefix(f.Name, "devinfoctl "); ok {
						args := append([]string{"--capture", path}, strings.Fields(line)...)
						if printsNothingRaw(t, args...); !strings.Contains(line, " -o ") && args[2] != "__complete" {
							printsNothingRaw(t, append(args, "-o", format)...)
						}
					}
				}
			})
		}
	}
}

func TestNamesDoNotReachTerminalRaw(t *testing.T) {
	capture, err := filepath.Abs(nodeHost)
	difftest.Must(t, err)
	t.Chdir(t.TempDir())
	difftest.Must(t, os.WriteFile("f"+poison, []byte(`{"type": "pci"}`), 0o600))
	for _, line := range []string{
		"inspect X", "inspect eth0 --netns X", "list X", "check X", "topology X", "list -n X", "X", "list --X", "list X X", "validate X", "validate fX", "validate fX X --kind X",
		"validate fX --cni-path X", "gc --dry-run --claim X", "--node-config X list", "--dra-state-dir X list", "capture -o X/y", "install --cni-bin-dir X", "--host-root X list",
	} {
		args := strings.Fields(line)
		for n := range args {
			args[n] = strings.ReplaceAll(args[n], "X", poison)
		}
		printsNothingRaw(t, args...)
		printsNothingRaw(t, append([]string{"--capture", capture}, args...)...)
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
