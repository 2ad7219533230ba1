// Package findingtest compares tables of findings with the page that explains them.
package findingtest

import (
	"regexp"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/ctl/finding"
	"devinfo-cni.io/test/difftest"
)

// Explained checks that each row is complete, that each problem has a section in docs/troubleshooting.md, and that the section
// has the text that the row names. It returns the sections by anchor. path is that of the root of the repository.
func Explained(t *testing.T, path string, rules finding.Table) (sections map[string]string) {
	t.Helper()
	sections = map[string]string{}
	for _, part := range strings.Split(difftest.Read(t, path+"/docs/troubleshooting.md"), "\n## ")[1:] {
		title, text, _ := strings.Cut(part, "\n")
		anchor := strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		sections[anchor] = strings.Join(strings.Fields(text), " ")
	}
	for _, r := range rules {
		if r.Name == "" || r.Reads == "" || r.Text == "" {
			t.Errorf("%+v: is not complete", r)
		}
		switch problem := r.Level == finding.Error || r.Level == finding.Warning; {
		case r.Section == "" && problem:
			t.Errorf("%s: a problem without a section", r.Name)
		case r.Section == "":
			continue
		case sections[r.Section] == "":
			t.Errorf("%s: the page has no section %s", r.Name, r.Section)
		case r.Says != "" && !strings.Contains(sections[r.Section], r.Says):
			t.Errorf("%s: section %s does not say %q", r.Name, r.Section, r.Says)
		}
		if !strings.Contains(r.Text, r.Says) {
			t.Errorf("%s: the finding does not say %q", r.Name, r.Says)
		}
	}
	return sections
}
