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
	findingtest.Explained(t, "../../..", validate.Rules)
	golden := ""
	for _, name := range difftest.Files(t, "testdata") {
		golden += difftest.Read(t, name)
	}
	golden = strings.NewReplacer("  validate: warning: ", "1: warning: ", "  validate: ", "1: error: ").Replace(golden) // messages.txt
	for _, r := range validate.Rules {
		text := regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(r.String()), ".*")
		if !regexp.MustCompile(`(?m)^\d+: ` + string(r.Level) + `: (.*: )?` + text + `$`).MatchString(golden) {
			t.Errorf("%s: no document of testdata has this %s", r.Name, r.Level)
		}
	}
}
