package undertest

import (
	"path/filepath"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// A test that is killed removes nothing.
func TestNextRunRemovesDirectoriesOfKilledRuns(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	difftest.Write(t, filepath.Join(tmp, "devinfo-undertest-1/devinfo"), "", 0o700)
	within(func(outer string) int {
		return within(func(inner string) int {
			difftest.Equal(t, difftest.Names(t, tmp), []string{filepath.Base(min(outer, inner)), filepath.Base(max(outer, inner))})
			return 0
		})
	})
	difftest.Equal(t, difftest.Names(t, tmp), []string(nil))
}
