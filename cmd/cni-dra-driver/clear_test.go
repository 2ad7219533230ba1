package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/dra/state"
)

func TestClearIsForWhatWasGivenUp(t *testing.T) {
	plugins := t.TempDir()
	store, err := state.Open(filepath.Join(plugins, driver, "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() // it is locked meanwhile, as by an agent
	at := state.Attachment{
		Pool: "n1", Device: "cni-3", Network: "net", IfName: "net1", List: json.RawMessage("{}"), Phase: state.Abandoned,
		Execution: state.Execution{Sandbox: "s1", Args: [][2]string{{"K8S_POD_NAMESPACE", "ns"}, {"K8S_POD_NAME", "pod"}}},
	}
	left := &state.Claim{Namespace: "ns", Name: "claim", UID: "u1", Attachments: []state.Attachment{at}}
	if err := store.Put(left); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := command()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"clear", "--kubelet-plugins-dir", plugins, "u2", "u1", "../u1"})
	err = cmd.Execute()
	if err == nil || !strings.Contains(err.Error(), `claim UID "u2"`) || !strings.Contains(err.Error(), "../u1") {
		t.Errorf("got %v", err)
	}
	if want := "claim ns/claim, pod ns/pod: interface net1 in network net, device n1/cni-3: cleared\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if !store.IsCleared(left.Key()) {
		t.Error("the agent is not told")
	}
	t.Setenv(state.DirVariable, filepath.Join(plugins, driver, "state"))
	out.Reset()
	cmd.SetArgs([]string{"clear", "u1"})
	if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), "cleared") {
		t.Errorf("in the node's directory: %q, %v", out.String(), err)
	}
	cmd.SetArgs([]string{"clear", "--kubelet-plugins-dir", filepath.Join(plugins, "none"), "u1"})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "give --kubelet-plugins-dir") {
		t.Errorf("in no directory: %v", err)
	}
	left.Attachments[0].Sandbox = "s2"
	if store.IsCleared(left.Key()) {
		t.Error("it is told of another one")
	}
}
