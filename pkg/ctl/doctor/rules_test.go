package doctor

import (
	"regexp"
	"testing"

	"devinfo-cni.io/pkg/ctl/finding/findingtest"
)

// The section of doctor has no other texts than the rules.
func TestTroubleshootingExplainsFindings(t *testing.T) {
	said := map[string]bool{}
	for _, r := range Rules {
		said[r.Says] = true
	}
	section := findingtest.Explained(t, "../../..", Rules)[inDoctor]
	for _, found := range regexp.MustCompile("\\*\\*`([^`]+)`\\*\\*").FindAllStringSubmatch(section, -1) {
		if !said[found[1]] {
			t.Errorf("no rule says %q", found[1])
		}
	}
}
