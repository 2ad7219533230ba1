package validate_test

import (
	"regexp"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/ctl/finding/findingtest"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/test/difftest"
)

// The page explains each finding, and some document of the golden files has it.
func TestTroubleshootingExplainsFindings(t *testing.T) {
	findingtest.Explained(t, "../../..", validate.Rules())
	golden := ""
	for _, name := range difftest.Files(t, "testdata") {
		golden += difftest.Read(t, name)
	}
	for _, r := range validate.Rules() {
		for _, part := range regexp.MustCompile(`\{[a-z]+\}`).Split(r.String(), -1) {
			if part = strings.Trim(part, "; "); part != "" && !strings.Contains(golden, part) {
				t.Errorf("%s: no document of testdata shows %q", r.Name, part)
			}
		}
	}
}
