package kernel_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// delegates returns a configuration with delegates, as a runtime passes it.
func delegates(children ...string) string {
	return `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "deviceID": "` + vf + `",
		"capabilities": {"CNIDeviceInfoFile": true}, "runtimeConfig": {"CNIDeviceInfoFile": "` + infoFile + `"},
		"delegates": [` + strings.Join(children, ",") + `]}`
}

// preparedInfo writes a file at the runtime's path, as Multus does.
func preparedInfo(t *testing.T, text string) {
	t.Helper()
	must(t, os.MkdirAll(infoDir, 0o755))
	must(t, os.WriteFile(infoFile, []byte(text), 0o644))
}

const prepared = `{"type":"pci","version":"1.0.0","pci":{"pci-address":"0000:01:10.0","x-vendor":1}}`

// asPrepared checks that of an attachment's state only the prepared file exists.
func asPrepared(t *testing.T, pod string) {
	t.Helper()
	same(t, "device-info file", read(t, infoFile), prepared)
	must(t, os.Remove(infoFile))
	nothingLeft(t, pod)
}

// mount mounts a tmpfs at dir until undo is called.
func mount(t *testing.T, dir, options string, flags uintptr) (undo func()) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", flags, "mode=0755,"+options))
	return func() { must(t, unix.Unmount(dir, 0)) }
}

// If a file cannot be written, STATUS reports it, and ADD leaves no state. DEL does not need space. test/crash tests
// a disk that fails at any call.
func TestFullOrReadOnlyDiskFailsSTATUSAndADD(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		for _, c := range []struct{ dir, add, status string }{
			{infoDir, infoFile + ": write", "device-info directory"},
			{stateDir, "mkdir " + stateDir + "/attachments", "state directory"},
		} {
			for why, flags := range map[string]uintptr{"no space left on device": 0, "read-only file system": unix.MS_RDONLY} {
				undo := mount(t, c.dir, "nr_inodes=1", flags)
				call(t, "STATUS", "", `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo"}`).fails(t, 50, c.status+": "+c.dir+": not writable: "+why)
				for _, conf := range []string{standalone, delegates(bridgeConf)} {
					call(t, "ADD", pod, conf).fails(t, 5, c.add+": "+why)
					nothingLeft(t, pod)
					delLeavesNothing(t, pod, conf)
				}
				undo()
			}
		}
	})
}
