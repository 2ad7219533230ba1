package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheGateIsPutBesideThePlugins(t *testing.T) {
	o := alone(t)
	o.hostRoot, o.cniBinDirs = filepath.Dir(o.kubeconfig), []string{"/none", "/opt/cni/bin"}
	o.gate = filepath.Join(o.hostRoot, "beside")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(o.hostRoot, "opt/cni/bin"), 0o755))
	bin, err := o.pluginsOnNode()
	must(err)
	if err := o.keepGate(bin, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "cni-dra-gate: it comes with this program") {
		t.Errorf("it is not there: %v", err)
	}
	must(os.WriteFile(o.gate, []byte("program"), 0o755))
	must(o.keepGate(bin, slog.New(slog.DiscardHandler)))
	if got := o.gateOn(bin); got != "/opt/cni/bin/cni-dra-gate" {
		t.Errorf("the runtime is told of %s", got)
	}
	if text, err := os.ReadFile(filepath.Join(o.hostRoot, "opt/cni/bin/cni-dra-gate")); err != nil || string(text) != "program" {
		t.Errorf("%q, %v", text, err)
	}
}
