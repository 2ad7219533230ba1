package kernel_test

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/difftest"
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

// becomes checks the result of a call: "ok", or code and message.
func (a answer) becomes(t *testing.T, what, want string) {
	t.Helper()
	got := "ok"
	if a.exit != 0 {
		got = fmt.Sprint(a.exit, ": ", compact(t, a.stdout))
	}
	same(t, what, got, want)
}

const gcAll = `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "cni.dev/valid-attachments": []}`

const oddEntry = stateDir + "/attachments/net@c0ffee@net1"

const unreadableEntry = `open ` + oddEntry + `: permission denied"}`

// An invalid entry is treated as missing. DEL and GC use the configuration and the leases instead, and ADD replaces
// the entry unless it has delegates, which need their DEL first. CHECK fails. An entry without read permission may be
// valid.
func TestOddJournalEntryIsTreatedAsMissing(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		for what := range oddities {
			for _, conf := range []string{standalone, delegates(bridgeConf)} {
				for verb, unreadable := range map[string]string{
					"ADD":   `1: {"cniVersion":"1.1.0","code":5,"msg":"` + unreadableEntry,
					"CHECK": `1: {"cniVersion":"1.1.0","code":5,"msg":"` + unreadableEntry,
					"DEL":   `1: {"cniVersion":"1.1.0","code":5,"msg":"` + unreadableEntry,
					"GC":    `1: {"cniVersion":"1.1.0","code":5,"msg":"attachment net/c0ffee/net1: ` + oddEntry + `: read: permission denied"}`,
				} {
					if verb == "ADD" && conf != standalone {
						continue
					}
					call(t, "ADD", pod, conf).ok(t)
					put(t, what, oddEntry)
					a := bound(t, verb, pod, strings.Replace(conf, "{", `{"cni.dev/valid-attachments": [], `, 1))
					switch {
					case what == "unreadable":
						a.becomes(t, verb, unreadable)
					case verb == "CHECK":
						if !strings.Contains(compact(t, a.stdout), `"code":101,`) {
							t.Errorf("%s: CHECK: %d, %s", what, a.exit, a.stdout)
						}
					case verb == "ADD":
						a.becomes(t, verb, "ok")
						same(t, "device-info file", read(t, infoFile), vfFile)
						bound(t, "CHECK", pod, conf).becomes(t, "CHECK", "ok")
					default:
						a.becomes(t, verb, "ok")
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
		const remove, renew = "remove the file or directory at this path", "recreate the pod, or DEL and ADD the attachment, to write the file again"
		says := func(code int, details, why string) string {
			if details != "" {
				details = `"details":"` + details + `",`
			}
			return fmt.Sprintf(`1: {"cniVersion":"1.1.0","code":%d,%s"msg":"%s: %s"}`, code, details, infoFile, why)
		}
		type want struct{ add, check string }
		wants := map[string]want{
			"unreadable": {says(5, remove, "read: permission denied"), says(5, "", "read: permission denied")},
			"corrupt": {"ok", says(103, renew,
				`corrupt: device-info is not JSON (Device Information Specification, 4): byte 2: invalid character '\\x00' looking for beginning of object key string`)},
			"huge": {says(5, remove, "too large: more than 1 MiB"), says(5, renew, "too large: more than 1 MiB")},
		}
		for what, mode := range map[string]string{
			"named pipe": "prw-r--r--", "directory": "drwxr-xr-x", "link": "Lrwxrwxrwx", "dangling link": "Lrwxrwxrwx", "link to itself": "Lrwxrwxrwx",
		} {
			why := "not a regular file (mode " + mode + ")"
			wants[what] = want{says(5, remove, why), says(5, renew, why)}
		}
		for what, want := range wants {
			inPlace := func() { // the oddity still exists
				t.Helper()
				if _, err := os.Lstat(infoFile); err != nil {
					t.Error(err)
				}
			}
			must(t, os.MkdirAll(infoDir, 0o755))
			for _, conf := range []string{standalone, delegates(bridgeConf)} {
				put(t, what, infoFile)
				bound(t, "ADD", pod, conf).becomes(t, "ADD", want.add)
				inPlace()
				bound(t, "DEL", pod, conf).becomes(t, "DEL", "ok")
				nothingLeft(t)

				must(t, os.RemoveAll(infoFile)) // a directory
				call(t, "ADD", pod, conf).ok(t)
				put(t, what, infoFile)
				bound(t, "CHECK", pod, conf).becomes(t, "CHECK", want.check)
				bound(t, "DEL", pod, conf).becomes(t, "DEL", "ok")
				nothingLeft(t, pod)
				if what == "directory" {
					inPlace()
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
		if err := os.Lchown(nodeFile, nobody, nobody); err != nil {
			t.Skipf("an ordinary user's namespace has one user: %v", err)
		}
		for _, conf := range []string{standalone, delegates(bridgeConf)} {
			for _, verb := range []string{"DEL", "GC"} {
				preparedInfo(t, prepared)
				must(t, os.Lchown(infoFile, nobody, nobody))
				call(t, "ADD", pod, conf).ok(t)
				for _, path := range difftest.Files(t, infoDir, stateDir) {
					must(t, os.Lchown(path, nobody, nobody))
				}
				call(t, "CHECK", pod, conf).ok(t)
				call(t, verb, pod, strings.Replace(conf, "{", `{"cni.dev/valid-attachments": [], `, 1)).ok(t)
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

// If the boot ID is unknown, no attachment counts as one of another boot. Living attachments keep their files, and
// new ones can be deleted.
func TestOddBootIDKeepsAttachments(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		oddities["empty"] = func(path string) error { return os.WriteFile(path, nil, 0o444) }
		for what, why := range map[string]string{
			"unreadable": "open /proc/sys/kernel/random/boot_id: permission denied",
			"corrupt":    "/proc/sys/kernel/random/boot_id: not a boot ID: \\\"{\\\\x00\\\"",
			"huge":       "/proc/sys/kernel/random/boot_id: ",
			"named pipe": "/proc/sys/kernel/random/boot_id: not a regular file",
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
	difftest.Contains(t, gc.warnings(), why)
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
		const none = `1: {"cniVersion":"1.1.0","code":5,"details":"mount it there, or set sysfs in the node settings","msg":"sysfs: `
		const denied = `1: {"cniVersion":"1.1.0","code":5,"msg":"deviceID: ` + vf + `: readlink ` + sys + `/bus/pci/devices/` + vf + `: permission denied"}`
		for what, want := range map[string]string{
			"gone":       none + "stat " + sys + `: no such file or directory"}`,
			"a file":     none + sys + `: not a directory"}`,
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
