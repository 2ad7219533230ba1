package kernel_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/node"
)

// forGC adds an empty list of valid attachments, which the other verbs ignore.
func forGC(conf string) string {
	return strings.Replace(conf, "{", `{"cni.dev/valid-attachments": [], `, 1)
}

// Root reads and removes files of other users.
func TestForeignOwnedFilesAreReadAndRemoved(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const nobody = 65534
		if err := os.Lchown(node.Settings, nobody, nobody); err != nil {
			t.Skipf("an ordinary user's namespace has one user: %v", err)
		}
		for _, conf := range []string{standalone, delegates(bridgeConf)} {
			for _, verb := range []string{"DEL", "GC"} {
				preparedInfo(t)
				must(t, os.Lchown(infoFile, nobody, nobody))
				call(t, "ADD", pod, conf).ok(t)
				for _, path := range difftest.Files(t, infoDir, stateDir) {
					must(t, os.Lchown(path, nobody, nobody))
				}
				call(t, "CHECK", pod, conf).ok(t)
				call(t, verb, pod, forGC(conf)).ok(t)
				nothingLeft(t, pod)
			}
		}
	})
}

// If the boot ID is unknown, which is logged, no attachment counts as one of another boot. Living attachments keep their
// files, and new ones can be deleted.
func TestUnknownBootIDKeepsAttachments(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const path = "/proc/sys/kernel/random/boot_id"
		must(t, os.WriteFile("/run/boot_id", nil, 0o444))
		for _, conf := range []string{standalone, delegates(bridgeConf)} {
			call(t, "ADD", pod, conf).ok(t)
			must(t, unix.Mount("/run/boot_id", path, "", unix.MS_BIND, ""))
			before := files(t, infoDir, stateDir)
			gc := call(t, "GC", "", `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo"}`)
			gc.ok(t)
			difftest.Contains(t, gc.warnings(), "boot_id")
			same(t, "our files", files(t, infoDir, stateDir), before)
			thief := call(t, "ADD", pod, standalone, "CNI_CONTAINERID=thief")
			difftest.Contains(t, thief.failure(t).Msg, "belongs to attachment net/c0ffee/net1")
			call(t, "CHECK", pod, conf).ok(t)
			if again := call(t, "ADD", pod, conf); conf != standalone {
				difftest.Contains(t, again.failure(t).Msg, "exists, since")
			}
			call(t, "DEL", pod, conf).ok(t)
			nothingLeft(t)

			call(t, "ADD", pod, conf).ok(t)
			must(t, unix.Unmount(path, 0))
			call(t, "CHECK", pod, conf).ok(t)
			delLeavesNothing(t, pod, conf)
		}
	})
}
