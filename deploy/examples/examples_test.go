// Package examples tests that the tests run the examples. devinfoctl's tests validate them.
package examples

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

func TestGuideShowsTheExample(t *testing.T) {
	for _, text := range []string{"- type: sriov # the driver adds deviceID\n                ipam:", "- name: blue # without it"} {
		difftest.Contains(t, difftest.Read(t, "vf-claim.yaml"), difftest.Block(t, "../../docs/dra", "yaml", text))
	}
}

// Each example has a line "# Run:", and a test in pods or in QEMU runs it unchanged.
func TestEachExampleIsRunByATest(t *testing.T) {
	tests := ""
	for _, path := range []string{"e2e/examples_test.go", "e2e/realdevices_test.go", "vm/examples_test.go"} {
		tests += difftest.Read(t, "../../test/"+path)
	}
	paths, err := filepath.Glob("*.yaml")
	if err != nil || len(paths) < 11 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		head, _, _ := strings.Cut(difftest.Read(t, path), "\napiVersion:")
		if !regexp.MustCompile(`(?m)^# Run: `).MatchString(head) {
			t.Errorf(`%s: no line "# Run:"`, path)
		}
		name := strings.TrimSuffix(path, ".yaml")
		if !regexp.MustCompile(`(\{"|name: "|examples/)` + name + `("[,}]|\.yaml")`).MatchString(tests) {
			t.Errorf("no test runs %s", path)
		}
	}
}
