package undertest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"devinfo-cni.io/test/difftest"
)

// A test that is killed removes nothing.
func TestNextRunRemovesDirectoriesOfKilledRuns(t *testing.T) {
	tmp, begun := t.TempDir(), time.Now()
	t.Setenv("TMPDIR", tmp)
	for name, age := range map[string]time.Duration{prefix + "1": time.Second, prefix + "2": 0, "other": time.Hour} {
		difftest.Write(t, filepath.Join(tmp, name, "devinfo"), "", 0o700)
		difftest.Must(t, os.Chtimes(filepath.Join(tmp, name), begun, begun.Add(-age)))
	}
	removeLeft(begun)
	difftest.Holds(t, tmp, prefix+"2", "other")
}
