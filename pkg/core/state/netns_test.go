package state_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/test/difftest"
)

// The driver replaces a record by a file of the same name.
func TestRecordsAreReadAgainOnlyAfterChange(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plugins/driver/state")
	record := func(netns string) string {
		return fmt.Sprintf(`{"schema": %d, "uid": "u1", "attachments": [{"request": "r", "list": {}, "ifName": "net1", "sandbox": "s1", "phase": "Added", "bootID": "boot", "netns": %q}]}`, state.Schema, netns)
	}
	put := func(netns string) {
		difftest.Write(t, filepath.Join(dir, "new"), record(netns), 0o600)
		difftest.Must(t, os.Rename(filepath.Join(dir, "new"), state.Path(dir, "u1")))
	}
	var n state.Netns
	expect := func(netns string, want bool) {
		t.Helper()
		held, err := n.Holds(dir, "boot", netns)
		difftest.Must(t, err)
		difftest.Same(t, netns, held, want)
	}
	put("/a")
	expect("/a", true)
	for _, netns := range []string{"/b", "/c"} { // within a second, the time of the directory may stay
		put(netns)
		difftest.Must(t, os.Chtimes(dir, time.Time{}, time.Now().Add(time.Hour).Truncate(time.Hour)))
		expect(netns, true)
		expect("/a", false)
	}
	put("/b")

	difftest.Must(t, os.Chtimes(dir, time.Time{}, time.Now().Add(-time.Hour)))
	expect("/b", true)
	difftest.Must(t, os.WriteFile(state.Path(dir, "u1"), []byte(record("/c")), 0o600)) // does not change the directory
	expect("/b", true)
	put("/d")
	expect("/d", true)
	expect("/b", false)

	before := time.Now().Add(-2 * time.Hour)
	write := func(text string) {
		difftest.Must(t, os.WriteFile(state.Path(dir, "u1"), []byte(text), 0o600), os.Chtimes(dir, time.Time{}, before))
	}
	write("{")
	_, err := n.Holds(dir, "boot", "/e")
	difftest.Says(t, err, "corrupt")
	write(record("/e")) // an error such as EMFILE ends without a change of the directory
	expect("/e", true)
}
