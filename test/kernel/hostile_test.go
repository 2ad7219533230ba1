package kernel_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

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

// What is not a file cannot be read or written, but is removed by DEL, unless it is a
// directory: nobody can know whose that is.
func TestOddThingsAtThePath(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const victim = "/run/passwd"
		must(t, os.WriteFile(victim, []byte("root:x:0:0\n"), 0o644))
		must(t, os.MkdirAll(infoDir, 0o755))
		conf := delegates(`{"type": "child"}`)
		for what, put := range map[string]func() error{
			"symbolic link":  func() error { return os.Symlink(victim, infoFile) },
			"dangling link":  func() error { return os.Symlink("/run/nosuch", infoFile) },
			"link to itself": func() error { return os.Symlink(infoFile, infoFile) },
			"named pipe":     func() error { return syscall.Mkfifo(infoFile, 0o644) },
		} {
			must(t, put())
			mode := "Lrwxrwxrwx"
			if what == "named pipe" {
				mode = "prw-r--r--"
			}
			call(t, "ADD", pod, conf).fails(t, 5, infoFile+": not a regular file (mode "+mode+")")
			same(t, "files after ADD", files(t, infoDir, stateDir), infoFile)
			delLeavesNothing(t, pod, conf)
		}
		same(t, "the victim", read(t, victim), "root:x:0:0\n")
		must(t, os.Mkdir(infoFile, 0o755))
		call(t, "ADD", pod, conf).fails(t, 5, infoFile+": not a regular file (mode drwxr-xr-x)")
		call(t, "DEL", pod, conf).ok(t)
		if _, err := os.Stat(infoFile); err != nil {
			t.Error(err)
		}
	})
}
