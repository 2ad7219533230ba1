package main

import (
	"strings"
	"testing"
)

// The help's own example for CI, and the examples of this repository, are right.
func TestValidateFindsNothingWrongWithOurManifests(t *testing.T) {
	t.Chdir("../..") // where the example is run
	ran := false
	for line := range strings.Lines(validateExample) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "devinfoctl "); ok && strings.HasSuffix(command, " deploy/") {
			ran = true
			if got := ctl(append(strings.Fields(command), "--cni-path=/nowhere")...); got.exit != 0 || got.stdout != "" {
				t.Errorf("%s: exit %d, %d findings\n%s", command, got.exit, strings.Count(got.stdout, "\n"), got.stdout)
			}
		}
	}
	if !ran {
		t.Errorf("no example validates deploy/:\n%s", validateExample)
	}
	got := ctl("validate", "--cni-path=/nowhere", "deploy/examples")
	if valid := strings.Count(got.stdout, ": cni-config (it is a NetworkAttachmentDefinition): valid\n"); got.exit != 0 || valid != 11 {
		t.Errorf("deploy/examples: exit %d, %d networks are valid\n%s", got.exit, valid, got.stdout)
	}
}
