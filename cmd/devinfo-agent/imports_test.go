package main_test

import (
	"os/exec"
	"strings"
	"testing"
)

// It runs on every node, and talks to no API server.
func TestTheAgentHasNoClientOfTheAPIServer(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Fatalf("go list gives %q", packages)
	}
	for _, path := range packages {
		for _, dear := range []string{"k8s.io/client-go", "k8s.io/apimachinery", "k8s.io/api/", "sigs.k8s.io/", "devinfo-cni.io/pkg/dra"} {
			if strings.HasPrefix(path, dear) {
				t.Errorf("it imports %s", path)
			}
		}
	}
}
