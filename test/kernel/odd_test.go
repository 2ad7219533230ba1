package kernel_test

import (
	"errors"
	"os"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/node"
)

// oddities replace a file by another one. The calls run as root without CAP_DAC_OVERRIDE, as in a container, so
// permissions apply.
var oddities = map[string]func(path string) error{
	"unreadable": func(path string) error { return os.WriteFile(path, []byte("{}"), 0) },
	"corrupt":    func(path string) error { return os.WriteFile(path, []byte("{\x00"), 0o644) },
	// Sparse, takes no space.
	"huge":       func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<30)) },
	"named pipe": func(path string) error { return syscall.Mkfifo(path, 0o644) },
	"directory":  func(path string) error { return os.Mkdir(path, 0o755) },
}

// put replaces a file by an oddity.
func put(t *testing.T, what, path string) {
	t.Helper()
	must(t, os.RemoveAll(path))
	must(t, oddities[what](path))
	t.Logf("%s: %s", path, what)
}

// bound runs a call without CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
func bound(t *testing.T, verb, netns, conf string, env ...string) (a answer) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		goruntime.LockOSThread() // not unlocked, so that the thread without the capabilities ends
		for _, capability := range []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH} {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
				t.Error(err)
			}
		}
		a = call(t, verb, netns, conf, env...)
	}()
	<-done
	return a
}

// code returns the error code of a call; 0 = it succeeded.
func (a answer) code(t *testing.T) uint {
	t.Helper()
	if a.exit == 0 {
		return 0
	}
	return a.failure(t).Code
}

// forGC adds an empty list of valid attachments, which the other verbs ignore.
func forGC(conf string) string {
	return strings.Replace(conf, "{", `{"cni.dev/valid-attachments": [], `, 1)
}

const oddEntry = stateDir + "/attachments/net@c0ffee@net1"

// An invalid entry is treated as missing. DEL and GC use the configuration and the leases instead, and ADD replaces
// the entry unless it has delegates, which need their DEL first. CHECK fails. An entry without read permission may be
// valid.
func TestOddJournalEntryIsTreatedAsMissing(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		for what := range oddities {
			for _, conf := range []string{standalone, delegates(bridgeConf)} {
				for verb, want := range map[string]uint{"ADD": 0, "CHECK": 101, "DEL": 0, "GC": 0} {
					if verb == "ADD" && conf != standalone {
						continue
					}
					if what == "unreadable" {
						want = 5
					}
					call(t, "ADD", pod, conf).ok(t)
					put(t, what, oddEntry)
					same(t, verb, bound(t, verb, pod, forGC(conf)).code(t), want)
					switch {
					case want == 0 && verb == "ADD":
						same(t, "device-info file", read(t, infoFile), vfFile)
						same(t, "CHECK", bound(t, "CHECK", pod, conf).code(t), uint(0))
					case want == 0:
						nothingLeft(t)
					}
					call(t, "DEL", pod, conf).ok(t) // DEL has the namespace, and GC does not
					nothingLeft(t, pod)
				}
			}
		}
	})
}

// The plugin does not follow links, and does not remove directories.
func TestOddDeviceInfoFileFailsADDAndCHECK(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const victim = "/run/passwd"
		must(t, os.WriteFile(victim, []byte("root:x:0:0\n"), 0o644))
		oddities["link"] = func(path string) error { return os.Symlink(victim, path) }
		oddities["dangling link"] = func(path string) error { return os.Symlink("/run/nosuch", path) }
		oddities["link to itself"] = func(path string) error { return os.Symlink(path, path) }
		for what := range oddities {
			add, check := uint(5), uint(5)
			if what == "corrupt" {
				add, check = 0, 103
			}
			must(t, os.MkdirAll(infoDir, 0o755))
			for _, conf := range []string{standalone, delegates(bridgeConf)} {
				put(t, what, infoFile)
				same(t, "ADD", bound(t, "ADD", pod, conf).code(t), add)
				_, err := os.Lstat(infoFile)
				must(t, err)
				bound(t, "DEL", pod, conf).ok(t)
				nothingLeft(t)

				must(t, os.RemoveAll(infoFile)) // a directory
				call(t, "ADD", pod, conf).ok(t)
				put(t, what, infoFile)
				same(t, "CHECK", bound(t, "CHECK", pod, conf).code(t), check)
				bound(t, "DEL", pod, conf).ok(t)
				nothingLeft(t, pod)
				if _, err := os.Lstat(infoFile); what == "directory" {
					must(t, err)
				}
			}
		}
		same(t, "the victim", read(t, victim), "root:x:0:0\n")
	})
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

// bootID replaces the kernel's boot ID by an oddity until undo is called.
func bootID(t *testing.T, what string) (undo func()) {
	t.Helper()
	const path = "/proc/sys/kernel/random/boot_id"
	put(t, what, "/run/boot_id")
	must(t, unix.Mount("/run/boot_id", path, "", unix.MS_BIND, ""))
	return func() { must(t, unix.Unmount(path, 0)) }
}

// If the boot ID is unknown, which is logged, no attachment counts as one of another boot. Living attachments keep their
// files, and new ones can be deleted.
func TestOddBootIDKeepsAttachments(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		oddities["empty"] = func(path string) error { return os.WriteFile(path, nil, 0o444) }
		for _, what := range []string{"unreadable", "corrupt", "huge", "named pipe", "empty"} {
			for _, conf := range []string{standalone, delegates(bridgeConf)} {
				call(t, "ADD", pod, conf).ok(t)
				undo := bootID(t, what)
				before := files(t, infoDir, stateDir)
				gc := bound(t, "GC", "", `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo"}`)
				gc.ok(t)
				difftest.Contains(t, gc.warnings(), "boot_id")
				same(t, "our files", files(t, infoDir, stateDir), before)
				thief := bound(t, "ADD", pod, standalone, "CNI_CONTAINERID=thief")
				difftest.Contains(t, thief.failure(t).Msg, "belongs to attachment net/c0ffee/net1")
				bound(t, "CHECK", pod, conf).ok(t)
				if again := bound(t, "ADD", pod, conf); conf != standalone {
					difftest.Contains(t, again.failure(t).Msg, "exists, since")
				}
				bound(t, "DEL", pod, conf).ok(t)
				nothingLeft(t)

				bound(t, "ADD", pod, conf).ok(t)
				undo()
				call(t, "CHECK", pod, conf).ok(t)
				delLeavesNothing(t, pod, conf)
			}
		}
	})
}

// Without /sys the plugin finds no device, but it can still remove attachments.
func TestOddSysAllowsDEL(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const sys = node.Sys
		for what, odd := range map[string]struct {
			put        func() error
			add, check uint
		}{
			"gone":       {func() error { return nil }, 5, 5},
			"a file":     {func() error { return os.WriteFile(sys, nil, 0o644) }, 5, 5},
			"empty":      {func() error { return os.Mkdir(sys, 0o755) }, 0, 100}, // a warning, unless the configuration is strict
			"unreadable": {func() error { return os.Mkdir(sys, 0) }, 5, 5},
		} {
			for _, conf := range []string{standalone, delegates(bridgeConf)} {
				call(t, "ADD", pod, conf).ok(t)
				mend := keep(t)
				must(t, os.RemoveAll(sys), odd.put())
				same(t, what+": CHECK", bound(t, "CHECK", pod, conf).code(t), odd.check)
				bound(t, "DEL", pod, conf).ok(t)
				nothingLeft(t)
				same(t, what+": ADD", bound(t, "ADD", pod, conf).code(t), odd.add)
				bound(t, "DEL", pod, conf).ok(t)
				nothingLeft(t, pod)
				mend()
			}
		}
	})
}
