package kernel_test

import (
	"fmt"
	"os"
	goruntime "runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// oddities are what may be in the place of a file. The calls are made by a root whom
// modes bind, as in a container without CAP_DAC_OVERRIDE.
var oddities = map[string]func(path string) error{
	"unreadable": func(path string) error { return os.WriteFile(path, []byte("{}"), 0) },
	"corrupt":    func(path string) error { return os.WriteFile(path, []byte("{\x00"), 0o644) },
	"huge":       sparse,
	"named pipe": func(path string) error { return syscall.Mkfifo(path, 0o644) },
	"directory":  func(path string) error { return os.Mkdir(path, 0o755) },
}

// sparse makes a file of 1 GiB, which takes no room.
func sparse(path string) error {
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		return err
	}
	return os.Truncate(path, 1<<30)
}

// put puts an oddity in the place of a file.
func put(t *testing.T, what, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if err := oddities[what](path); err != nil {
		t.Fatal(err)
	}
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

const oddEntry = stateDir + "/attachments/net@c0ffee@net1"
