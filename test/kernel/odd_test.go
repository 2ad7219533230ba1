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

	"devinfo-cni.io/pkg/difftest"
)

// oddities are what may be in the place of a file. The calls are made by a root whom
// modes bind, as in a container without CAP_DAC_OVERRIDE.
var oddities = map[string]func(path string) error{
	"unreadable": func(path string) error { return os.WriteFile(path, []byte("{}"), 0) },
	"corrupt":    func(path string) error { return os.WriteFile(path, []byte("{\x00"), 0o644) },
	"huge":       func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<30)) }, // takes no room
	"named pipe": func(path string) error { return syscall.Mkfifo(path, 0o644) },
	"directory":  func(path string) error { return os.Mkdir(path, 0o755) },
}

// put puts an oddity in the place of a file.
func put(t *testing.T, what, path string) {
	t.Helper()
	must(t, os.RemoveAll(path))
	must(t, oddities[what](path))
	t.Logf("%s: %s", path, what)
}

// bound makes a call without CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
func bound(t *testing.T, verb, netns, conf string, env ...string) (a answer) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		goruntime.LockOSThread() // to its end: what a thread may do is its own
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

// becomes checks what a call came to: "ok", or code and message.
func (a answer) becomes(t *testing.T, what, want string) {
	t.Helper()
	got := "ok"
	if a.exit != 0 {
		got = fmt.Sprint(a.exit, ": ", compact(t, a.stdout))
	}
	same(t, what, got, want)
}

const gcAll = `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "cni.dev/valid-attachments": []}`

// ADD and CHECK refuse node settings that cannot be read. DEL succeeds, for the pod has
// to go; what it did not find the GC after the settings are mended does.
func TestOddNodeSettings(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		settings := read(t, nodeFile)
		for what, why := range map[string]string{
			"unreadable": ": open " + nodeFile + ": permission denied",
			"corrupt":    " " + nodeFile + `: must be one JSON object, {\"stateDir\": \"/x\"}` + ": invalid character '\\\\x00' looking for beginning of object key string",
			"huge":       ": " + nodeFile + ": too large: more than 1 MiB",
			"named pipe": ": " + nodeFile + ": not a regular file (mode prw-r--r--)",
			"directory":  ": " + nodeFile + ": not a regular file (mode drwxr-xr-x)",
		} {
			call(t, "ADD", pod, standalone(infoFile)).ok(t)
			put(t, what, nodeFile)
			for _, verb := range []string{"CHECK", "ADD"} {
				bound(t, verb, pod, standalone(infoFile)).becomes(t, verb,
					`1: {"cniVersion":"1.1.0","code":7,"details":"correct the file, or remove it to use the defaults","msg":"node settings`+why+`"}`)
			}
			bound(t, "DEL", pod, standalone(infoFile)).becomes(t, "DEL", "ok")
			must(t, os.RemoveAll(nodeFile))
			must(t, os.WriteFile(nodeFile, []byte(settings), 0o644))
			call(t, "GC", "", gcAll).ok(t)
			nothingLeft(t)
		}
	})
}

const oddEntry = stateDir + "/attachments/net@c0ffee@net1"

const unreadableEntry = `open ` + oddEntry + `: permission denied"}`

// What is not an entry says nothing: DEL and GC tell from the configuration and the leases
// what there is to remove, and an ADD without delegates takes its place (those would need their
// DEL first). CHECK fails. Only one that may not be read may be a good one.
func TestOddJournalEntry(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		for what := range oddities {
			for _, conf := range []string{standalone(infoFile), delegates(bridgeConf)} {
				for verb, unreadable := range map[string]string{
					"ADD":   `1: {"cniVersion":"1.1.0","code":5,"msg":"` + unreadableEntry,
					"CHECK": `1: {"cniVersion":"1.1.0","code":5,"msg":"` + unreadableEntry,
					"DEL":   `1: {"cniVersion":"1.1.0","code":5,"msg":"` + unreadableEntry,
					"GC":    `1: {"cniVersion":"1.1.0","code":5,"msg":"attachment net/c0ffee/net1: ` + unreadableEntry,
				} {
					if verb == "ADD" && conf != standalone(infoFile) {
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
					call(t, "DEL", pod, conf).ok(t) // which knows the namespace, and GC does not
					nothingLeft(t, pod)
				}
			}
		}
	})
}

// Nothing is followed, and a directory is not removed.
func TestOddDeviceInfoFile(t *testing.T) {
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
			inPlace := func() { // of the file, still
				t.Helper()
				if _, err := os.Lstat(infoFile); err != nil {
					t.Error(err)
				}
			}
			must(t, os.MkdirAll(infoDir, 0o755))
			for _, conf := range []string{standalone(infoFile), delegates(bridgeConf)} {
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

// It is only read.
func TestOddDevicePluginsFile(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const dir = "/run/k8s.cni.cncf.io/devinfo/dp"
		const file = dir + "/example.com-sriov-" + vf + "-device.json"
		conf := strings.Replace(standalone(infoFile), "{", `{"resourceName": "example.com/sriov", `, 1)
		for what, why := range map[string]string{
			"unreadable": "read: permission denied",
			"corrupt":    "",
			"huge":       "too large: more than 1 MiB",
			"named pipe": "not a regular file (mode prw-r--r--)",
			"directory":  "not a regular file (mode drwxr-xr-x)",
		} {
			want := "ok" // taken as absent
			if why != "" {
				want = `1: {"cniVersion":"1.1.0","code":5,"details":"remove the file or directory at this path","msg":"/var` + file + `: ` + why + `"}`
			}
			must(t, os.MkdirAll(dir, 0o755))
			put(t, what, file)
			bound(t, "ADD", pod, conf).becomes(t, "ADD", want)
			bound(t, "DEL", pod, conf).becomes(t, "DEL", "ok")
			nothingLeft(t)
			if _, err := os.Lstat(file); err != nil {
				t.Error(err)
			}
		}
	})
}

// Root reads and removes what is another user's, as all else.
func TestForeignOwnedFiles(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const nobody = 65534
		if err := os.Lchown(nodeFile, nobody, nobody); err != nil {
			t.Skipf("an ordinary user's namespace has one user: %v", err)
		}
		for _, conf := range []string{standalone(infoFile), delegates(bridgeConf)} {
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

// Two megabytes are a lot, but no reason to fail, or to fill the log.
func TestHugeConfiguration(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		huge := strings.Repeat("x", 2<<20)
		for _, key := range []string{`"x-vendor": "` + huge + `"`, `"` + huge + `": 1`, `"args": {"cni": "` + huge + `"}`} {
			conf := strings.Replace(standalone(infoFile), "{", "{"+key+", ", 1)
			for _, verb := range []string{"ADD", "CHECK", "DEL"} {
				a := call(t, verb, pod, conf)
				a.ok(t)
				if len(a.stderr) > 4096 {
					t.Errorf("%s, %.20s…: %d bytes in the log", verb, key, len(a.stderr))
				}
			}
		}
		nothingLeft(t)
	})
}
