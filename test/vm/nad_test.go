//go:build vm

package vm_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const sriovDir = "/var/lib/cni/sriov"

// nothingBut fails the test if a plugin keeps other files than these, and removes all.
func nothingBut(t *testing.T, dir string, want ...string) {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(dir, path)
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if !slices.Equal(found, want) {
		t.Errorf("%s has %s, want %s", dir, found, want)
	}
	os.RemoveAll(dir)
}
