package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

var link = regexp.MustCompile(`\]\(([^)#: ]*)(#[^)]*)?\)`)

// anchors returns the anchors of a page's headings, as GitHub generates them.
func anchors(page string) map[string]bool {
	list := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		anchor := regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		list[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	return list
}

// The project's domain is not registered yet. Links must be relative, or come from a value that the operator sets.
func TestLinksAreRelativeOrConfigured(t *testing.T) {
	const top = "../.."
	nowhere, looked := "://"+"devinfo-cni.io", 0
	var places []string
	for _, name := range difftest.Names(t, top) {
		if !slices.Contains([]string{".git", "bin", "dist"}, name) {
			places = append(places, filepath.Join(top, name))
		}
	}
	for _, path := range difftest.Files(t, places...) {
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		text := difftest.Read(t, path)
		if strings.Contains(text, nowhere) {
			t.Errorf("%s has a link to %s", path, nowhere)
		}
		if filepath.Ext(path) != ".md" {
			continue
		}
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			looked++
			page, target := text, filepath.Join(filepath.Dir(path), found[1])
			if found[1] != "" {
				if _, err := os.Stat(target); err != nil {
					t.Errorf("%s: %s leads nowhere", path, found[0])
					continue
				}
			}
			if found[1] != "" && found[2] != "" {
				page = difftest.Read(t, target)
			}
			if found[2] != "" && !anchors(page)[found[2][1:]] {
				t.Errorf("%s: %s: there is no such heading", path, found[0])
			}
		}
	}
	if looked < 100 {
		t.Errorf("%d links", looked)
	}
}
