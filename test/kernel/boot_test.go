package kernel_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// bootID replaces the kernel's boot ID by an oddity until undo is called.
func bootID(t *testing.T, what string) (undo func()) {
	t.Helper()
	const path = "/proc/sys/kernel/random/boot_id"
	put(t, what, "/run/boot_id")
	must(t, unix.Mount("/run/boot_id", path, "", unix.MS_BIND, ""))
	return func() { must(t, unix.Unmount(path, 0)) }
}

// If the boot ID is unknown, no attachment counts as one of another boot. Living attachments keep their files, and
// new ones can be deleted.
func TestOddBootIDKeepsAttachments(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		oddities["empty"] = func(path string) error { return os.WriteFile(path, nil, 0o444) }
		for what, why := range map[string]string{
			"unreadable": "open /proc/sys/kernel/random/boot_id: permission denied",
			"corrupt":    "/proc/sys/kernel/random/boot_id: not a boot ID: \\\"{\\\\x00\\\"",
			"huge":       "/proc/sys/kernel/random/boot_id: not a boot ID: ",
			"named pipe": "/proc/sys/kernel/random/boot_id: not a boot ID: \\\"\\\"",
			"empty":      "/proc/sys/kernel/random/boot_id: not a boot ID: \\\"\\\"",
		} {
			for _, conf := range []string{standalone, delegates(bridgeConf)} {
				call(t, "ADD", pod, conf).ok(t)
				undo := bootID(t, what)
				livesOn(t, pod, conf, why)
				bound(t, "DEL", pod, conf).becomes(t, "DEL", "ok")
				nothingLeft(t)

				bound(t, "ADD", pod, conf).ok(t)
				undo()
				call(t, "CHECK", pod, conf).ok(t)
				delLeavesNothing(t, pod, conf)
			}
		}
	})
}

// livesOn checks that an attachment counts as living, and that the reason is logged as a warning.
func livesOn(t *testing.T, pod, conf, why string) {
	t.Helper()
	before := files(t, infoDir, stateDir)
	gc := bound(t, "GC", "", `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo"}`)
	gc.becomes(t, "GC", "ok")
	if !strings.Contains(gc.warnings(), why) {
		t.Errorf("warnings: %s\nwant: %s", gc.warnings(), why)
	}
	same(t, "our files", files(t, infoDir, stateDir), before)
	thief := bound(t, "ADD", pod, standalone, "CNI_CONTAINERID=thief")
	if thief.exit == 0 || !strings.Contains(thief.stdout, "belongs to attachment net/c0ffee/net1") {
		t.Errorf("another attachment's file: %s", thief.stdout)
	}
	bound(t, "CHECK", pod, conf).becomes(t, "CHECK", "ok")
	again := bound(t, "ADD", pod, conf)
	if conf != standalone && !strings.Contains(again.stdout, "exists, since") {
		t.Errorf("ADD again: %s", again.stdout)
	}
}

// Without /sys the plugin finds no device, but it can still remove attachments.
func TestOddSysAllowsDEL(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const sys = "/run/sys"
		odd := map[string]func() error{
			"gone":       func() error { return nil },
			"a file":     func() error { return os.WriteFile(sys, nil, 0o644) },
			"empty":      func() error { return os.Mkdir(sys, 0o755) },
			"unreadable": func() error { return os.Mkdir(sys, 0) },
		}
		const none = `1: {"cniVersion":"1.1.0","code":5,"details":"mount it there, or set sysfs in the node settings","msg":"no sysfs at ` + sys + `"}`
		const denied = `1: {"cniVersion":"1.1.0","code":5,"msg":"deviceID: ` + vf + `: readlink ` + sys + `/bus/pci/devices/` + vf + `: permission denied"}`
		for what, want := range map[string]string{
			"gone":       none,
			"a file":     none,
			"empty":      "ok", // the device is missing: a warning, unless the configuration is strict
			"unreadable": denied,
		} {
			for _, conf := range []string{standalone, delegates(bridgeConf)} {
				call(t, "ADD", pod, conf).ok(t)
				mend := keep(t)
				must(t, os.RemoveAll(sys), odd[what]())
				if check := bound(t, "CHECK", pod, conf); what == "empty" {
					check.fails(t, 100, "deviceID names the PCI function "+vf+", which is not on this node")
				} else {
					check.becomes(t, "CHECK", want)
				}
				bound(t, "DEL", pod, conf).becomes(t, "DEL", "ok")
				nothingLeft(t)
				bound(t, "ADD", pod, conf).becomes(t, "ADD", want)
				bound(t, "DEL", pod, conf).becomes(t, "DEL", "ok")
				nothingLeft(t, pod)
				mend()
			}
		}
	})
}
