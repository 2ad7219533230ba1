package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if name := e.Name(); name == ".git" || filepath.Dir(path) == top && (name == "bin" || name == "dist") {
				return fs.SkipDir
			}
			return nil
		}
		if !e.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.Contains(string(text), nowhere) {
			t.Errorf("%s has a link to %s", path, nowhere)
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			looked++
			page, target := string(text), filepath.Join(filepath.Dir(path), found[1])
			if found[1] != "" {
				if _, err := os.Stat(target); err != nil {
					t.Errorf("%s: %s leads nowhere", path, found[0])
					continue
				}
			}
			if found[1] != "" && found[2] != "" {
				other, err := os.ReadFile(target)
				if err != nil {
					return err
				}
				page = string(other)
			}
			if found[2] != "" && !anchors(page)[found[2][1:]] {
				t.Errorf("%s: %s: there is no such heading", path, found[0])
			}
		}
		return nil
	})
	if err != nil || looked < 100 {
		t.Errorf("%d links, %v", looked, err)
	}
}
