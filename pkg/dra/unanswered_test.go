package dra_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// A sandbox without its networks must not run, where the runtime's NRI lets the agent say so.
func TestASandboxFailsIfTheAgentIsLostWhileItIsAsked(t *testing.T) {
	r := newRig(t)
	cni, asked, answer := newPlugins(), make(chan struct{}), make(chan struct{})
	cni.set(func(string, string, string) error { close(asked); <-answer; return nil })
	r.options.Exec = cni
	nri := r.serve(t)
	wire := layLine(t, filepath.Join(r.dir, "line"), r.socket())
	r.connect(t, filepath.Join(r.dir, "line"))
	r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
	go func() { <-asked; wire.cut() }()
	err := nri.runPod(r.sandbox("s1", "pod"))
	cni.set(nil)
	close(answer)
	if err == nil || !strings.Contains(err.Error(), "failed to handle RunPodSandbox request: ttrpc: closed") {
		t.Errorf("got %v", err)
	}
}
