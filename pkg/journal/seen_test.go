package journal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/journal"
)

func TestAStateDirectoryIsSeenOrMade(t *testing.T) {
	j, dir := open(t)
	for range 2 {
		must(t, j.Seen())
		if stat, err := os.Stat(dir); err != nil || stat.Mode().Perm() != 0o755 {
			t.Errorf("%v, %v", stat, err)
		}
	}
	must(t, os.Remove(filepath.Join(dir, "attachments")))
	must(t, j.Seen()) // one that is mounted, before the first ADD
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, path := range []string{file, file + "/state", "/proc/none/state"} {
		if err := journal.Open(path, boot).Seen(); err == nil || !strings.HasPrefix(err.Error(), "stateDir: "+path+" is not there and cannot be made: ") {
			t.Errorf("%s: got %v", path, err)
		}
	}
}
