package kernel_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// mount puts a tmpfs of its own at dir, until undo is called.
func mount(t *testing.T, dir, options string, flags uintptr) (undo func()) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", flags, "mode=0755,"+options))
	return func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}
}

// Where there is no room for a file STATUS says so, and ADD leaves nothing. DEL needs none: where
// nothing is to be undone, nothing is made. A disk that fails at any other call is test/crash's.
func TestADiskThatIsFullOrReadOnly(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		for _, c := range []struct{ dir, add, status string }{
			{infoDir, infoFile + ": write", "device-info directory"},
			{stateDir, "mkdir " + stateDir + "/attachments", "state directory"},
		} {
			for why, flags := range map[string]uintptr{"no space left on device": 0, "read-only file system": unix.MS_RDONLY} {
				undo := mount(t, c.dir, "nr_inodes=1", flags)
				call(t, "STATUS", "", `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo"}`).fails(t, 50, c.status+": "+c.dir+": not writable: "+why)
				for _, conf := range []string{standalone(infoFile), delegates(bridgeConf)} {
					call(t, "ADD", pod, conf).fails(t, 5, c.add+": "+why)
					nothingLeft(t, pod)
					delLeavesNothing(t, pod, conf)
				}
				undo()
			}
		}
	})
}
