package doctor

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// docs/troubleshooting.md explains each problem that doctor finds: in the section that the rule names, by the text that the
// rule names. The section of doctor has no other texts.
func TestTroubleshootingExplainsFindings(t *testing.T) {
	sections := map[string]string{}
	for _, part := range strings.Split(difftest.Read(t, "../../../docs/troubleshooting.md"), "\n## ")[1:] {
		title, text, _ := strings.Cut(part, "\n")
		anchor := strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		sections[anchor] = strings.Join(strings.Fields(text), " ")
	}
	said := map[string]bool{}
	for _, r := range Rules() {
		switch problem := r.Level == Error || r.Level == Warning; {
		case r.Section == "":
			if problem && r.Check != "cards" {
				t.Errorf("%s: a problem without a section", r.Name)
			}
			continue
		case sections[r.Section] == "":
			t.Errorf("%s: the page has no section %s", r.Name, r.Section)
		case r.Says != "" && !strings.Contains(sections[r.Section], r.Says):
			t.Errorf("%s: section %s does not say %q", r.Name, r.Section, r.Says)
		}
		if !strings.Contains(r.Text, r.Says) {
			t.Errorf("%s: the finding does not say %q", r.Name, r.Says)
		}
		said[r.Says] = true
	}
	for _, found := range regexp.MustCompile("\\*\\*`([^`]+)`\\*\\*").FindAllStringSubmatch(sections[inDoctor], -1) {
		if !said[found[1]] {
			t.Errorf("no rule says %q", found[1])
		}
	}
	if slices.ContainsFunc(Rules(), func(r Rule) bool { return r.Name == "" || r.Reads == "" || r.Text == "" }) {
		t.Error("a rule is not complete")
	}
}
