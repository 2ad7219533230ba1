package main

import (
	"os/exec"
	"strings"
	"testing"
)

// It asks no API server, and judges no device: what the rules make of them the driver has left
// for it. Either would be a third of it.
func TestItHasNeitherAClientOfTheAPIServerNorCEL(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil || strings.Count(string(out), "\n") < 100 {
		t.Fatalf("go list gives %q, %v", out, err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		for _, denied := range []string{"k8s.io/client-go", "k8s.io/apiserver", "github.com/google/cel-go", "devinfo-cni.io/pkg/inventory"} {
			if strings.HasPrefix(path, denied) {
				t.Errorf("it imports %s", path)
			}
		}
	}
}
