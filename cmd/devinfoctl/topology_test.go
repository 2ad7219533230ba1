package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTopologyOfCapturedHosts(t *testing.T) {
	names, err := filepath.Glob(hosts + "*.txtar")
	if err != nil || len(names) < 12 {
		t.Fatalf("%d hosts, %v", len(names), err)
	}
	for _, name := range names {
		base := strings.TrimSuffix(filepath.Base(name), ".txtar")
		t.Run(base, func(t *testing.T) {
			golden(t, "topology-"+base, "--host", name, "topology")
		})
	}
	for _, format := range []string{"tree", "dot", "json", "yaml", "table"} {
		t.Run(format, func(t *testing.T) {
			golden(t, "topology-node-"+format, "--host", "testdata/node.txtar", "topology", "-o", format)
		})
	}
}

// Graphviz itself says whether it is DOT.
func TestDOTIsReadByGraphviz(t *testing.T) {
	dot, err := exec.LookPath("dot")
	if err != nil {
		t.Skip("Graphviz is not installed: its language is only compared with golden files")
	}
	o := ctl("--host", "testdata/node.txtar", "topology", "-o", "dot")
	cmd := exec.Command(dot, "-Tplain")
	cmd.Stdin = strings.NewReader(o.stdout)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "\nnode ") != strings.Count(o.stdout, "[label=") {
		t.Errorf("dot: %v: %s\nfor\n%s", err, out, o.stdout)
	}
}
