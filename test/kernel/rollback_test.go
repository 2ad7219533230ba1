package kernel_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// delegates is a configuration as a runtime passes it, with children.
func delegates(children ...string) string {
	return `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "deviceID": "` + vf + `",
		"capabilities": {"CNIDeviceInfoFile": true}, "runtimeConfig": {"CNIDeviceInfoFile": "` + infoFile + `"},
		"delegates": [` + strings.Join(children, ",") + `]}`
}

// preparedInfo puts a file where the runtime's path leads, as Multus does.
func preparedInfo(t *testing.T, text string) {
	t.Helper()
	must(t, os.MkdirAll(infoDir, 0o755))
	must(t, os.WriteFile(infoFile, []byte(text), 0o644))
}

const prepared = `{"type":"pci","version":"1.0.0","pci":{"pci-address":"0000:01:10.0","x-vendor":1}}`

// asPrepared checks that only the prepared file is there of an attachment.
func asPrepared(t *testing.T, pod string) {
	t.Helper()
	same(t, "device-info file", read(t, infoFile), prepared)
	must(t, os.Remove(infoFile))
	nothingLeft(t, pod)
}

// The first error is the one that counts, however its code came about, also where what is wrong
// with the device shows only after the children have made the interface.
func TestAnADDThatFailsUndoesItsChildren(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		for _, c := range []struct {
			children     []string // behind the bridge
			code         uint
			msg, details string
			calls        string // of the child
		}{
			{[]string{`{"type": "tuning", "sysctl": {"net.ipv4.nonsense": "1"}}`, `{"type": "child"}`}, 999,
				"delegates[1] (tuning): ADD: open /proc/sys/net/ipv4/nonsense: no such file or directory", "", ""},
			{[]string{`{"type": "child", "play": {"error": {"cniVersion": "1.1.0", "code": 119, "msg": "no more cheese", "details": "stilton"}}}`}, 119,
				"delegates[1] (child): ADD: no more cheese", "stilton", "ADD\nDEL\n"},
			{[]string{`{"type": "child", "play": {"spoil": "` + infoFile + `"}}`}, 102,
				"deviceID names the PCI function 0000:01:10.0, but the device-info file names the PCI function 0000:01:10.2; both must name the same device",
				"correct the wrong source; if that is a leftover device-info file, remove it", "ADD\nDEL\n"},
		} {
			preparedInfo(t, prepared)
			a := call(t, "ADD", pod, delegates(append([]string{bridgeConf}, c.children...)...))
			a.fails(t, c.code, c.msg)
			same(t, "details", a.failure(t).Details, c.details)
			same(t, "calls of the child", childCalls(t), c.calls)
			same(t, "interfaces beside the pod", hostLinks(t), "br0")
			asPrepared(t, pod)
		}
	})
}

// mount puts a tmpfs of its own at dir, until undo is called.
func mount(t *testing.T, dir, options string, flags uintptr) (undo func()) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", flags, "mode=0755,"+options))
	return func() { must(t, unix.Unmount(dir, 0)) }
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
