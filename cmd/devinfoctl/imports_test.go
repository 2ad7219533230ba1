package main

import (
	"os/exec"
	"strings"
	"testing"
)

// It asks no API server: a client would be a third of it.
func TestItHasNoClientOfTheAPIServer(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil || strings.Count(string(out), "\n") < 100 {
		t.Fatalf("go list gives %q, %v", out, err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(path, "k8s.io/client-go") {
			t.Errorf("it imports %s", path)
		}
	}
}
