package undertest_test

import (
	"path/filepath"
	"testing"

	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

// A test that is killed removes nothing.
func TestNextRunRemovesDirectoriesOfKilledRuns(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv(undertest.Key, "/none") // builds nothing
	difftest.Write(t, filepath.Join(tmp, "devinfo-undertest-1/devinfo"), "", 0o700)
	undertest.Main(func(outer string) int {
		return undertest.Main(func(inner string) int {
			difftest.Equal(t, difftest.Names(t, tmp), []string{filepath.Base(min(outer, inner)), filepath.Base(max(outer, inner))})
			return 0
		})
	})
	difftest.Equal(t, difftest.Names(t, tmp), []string(nil))
}
