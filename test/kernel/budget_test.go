package kernel_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/node"
)

// budgets are the system calls of a chained call for a VF, by name. They are the calls on files and sockets. The
// calls of the Go runtime are left out, because their number varies. The state directories already exist, as on every
// node after its first ADD. A call may be made a fifth more often, rounded up, before the test fails.
var budgets = map[string]map[string]int{
	"ADD": {
		"bind": 1, "close": 10, "fchmod": 1, "fchmodat": 1, "fcntl": 20, "flock": 4, "fstat": 3, "getdents64": 2, "mkdirat": 1,
		"newfstatat": 29, "openat": 20, "read": 6, "readlinkat": 10, "recvfrom": 2, "renameat": 2, "sendto": 1,
		"setns": 2, "socket": 1, "statfs": 4, "symlinkat": 2, "write": 3,
	},
	"DEL": {"close": 4, "fcntl": 1, "flock": 3, "fstat": 3, "newfstatat": 20, "openat": 4, "read": 8, "statfs": 1, "unlinkat": 4},
}

func needStrace(t *testing.T) (path string) {
	t.Helper()
	path, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed: apt-get install strace")
	}
	return path
}

func TestChainedCallsMakeBudgetedSystemCalls(t *testing.T) {
	strace := needStrace(t)
	onStage(t, func(t *testing.T, pod string) {
		conf := chained(pod, `"deviceID": "`+vf+`",`)
		for _, verb := range []string{"ADD", "DEL"} {
			call(t, verb, pod, conf).ok(t)
		}
		for _, verb := range []string{"ADD", "DEL"} {
			trace := t.TempDir() + "/trace"
			cmd := devinfo(verb, pod, conf)
			cmd.Args = []string{strace, "-f", "-qq", "-e", "signal=none", "-e", "trace=%file,%desc,%network,setns", "-o", trace, cmd.Path}
			cmd.Path = strace
			finish(t, cmd).ok(t)
			text := read(t, trace)
			if keep := os.Getenv("DEVINFO_TRACES"); keep != "" {
				must(t, os.WriteFile(keep+"/"+verb, []byte(text), 0o644))
			}
			for name, n := range counted(t, text) {
				if most := (6*budgets[verb][name] + 4) / 5; n > most {
					t.Errorf("%s makes %d calls of %s, of at most %d; DEVINFO_TRACES=DIRECTORY keeps the traces", verb, n, name, most)
				}
			}
		}
	})
}

var eventfd = regexp.MustCompile(`eventfd2\(.*\) = (\d+)`)

// counted counts the calls in a trace from the point where the Go runtime checks standard error, which is its last
// call before main. It leaves out calls for waiting, and the check of the CPU limit in a thread of its own.
func counted(t *testing.T, trace string) map[string]int {
	t.Helper()
	_, main, ok := strings.Cut(trace, "fcntl(2, F_GETFL") // strace may split the call
	if !ok {
		t.Fatalf("a trace without the start of the runtime:\n%s", trace)
	}
	wake := "none"
	if m := eventfd.FindStringSubmatch(main); m != nil {
		wake = m[1]
	}
	counts := map[string]int{}
	for line := range strings.Lines(main) {
		m := made.FindStringSubmatch(line)
		if m == nil || slices.Contains(runtimes, m[2]) || strings.HasPrefix(m[3], wake+", ") && (m[2] == "read" || m[2] == "write") {
			continue
		}
		counts[m[2]]++
	}
	return counts
}

// runtimes are calls that only the Go runtime makes.
var runtimes = []string{"epoll_create1", "epoll_ctl", "epoll_pwait", "eventfd2", "mmap", "pread64"}

var (
	made     = regexp.MustCompile(`^(\d+) +(\w+)\((.*)`)
	resumed  = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>(.*)`)
	returned = regexp.MustCompile(` = (\d+)$`)
)

// The list is for seccomp profiles. It leaves out delegates and their children. It includes the calls of a child before
// it executes a program.
func TestPluginMakesListedSystemCallsOnly(t *testing.T) {
	strace := needStrace(t)
	list := strings.Fields(read(t, "testdata/syscalls"))
	onStage(t, func(t *testing.T, pod string) {
		process := ownProcess(t)
		traces := t.TempDir()
		wrapper := node.Bin + "/traced"
		text := "#!/bin/sh\nexec " + strace + " -f -qq -o " + traces + "/$$ " + node.Bin + "/devinfo\n"
		must(t, os.WriteFile(wrapper, []byte(text), 0o755))
		for _, conf := range []string{standalone, delegates(`{"type": "child"}`), chained(pod, "")} {
			for _, netns := range []string{pod, process} {
				for _, verb := range []string{"STATUS", "ADD", "CHECK", "DEL", "GC"} {
					cmd := devinfo(verb, netns, conf)
					cmd.Path = wrapper
					finish(t, cmd) // the result does not matter
				}
			}
		}
		files, err := filepath.Glob(traces + "/*")
		if err != nil || len(files) == 0 {
			t.Fatalf("no traces: %v", err)
		}
		names := map[string]bool{}
		for _, file := range files {
			callsOf(read(t, file), names)
		}
		if len(names) < 30 {
			t.Errorf("only %d system calls are seen: %v", len(names), names)
		}
		for name := range names {
			if !slices.Contains(list, name) {
				t.Errorf("%s is not in testdata/syscalls", name)
			}
		}
	})
}

func TestTraceOfEndingThreadShowsNoCall(t *testing.T) {
	names := map[string]bool{}
	callsOf("7 futex(0x1, 0x2)   = ?\n7 syscall_0xfffffffffffffe00(0x1, 0x2) = ?\n7 syscall_0x1d6(0) = -1 ENOSYS\n", names)
	difftest.Same(t, "calls", strings.Join(slices.Sorted(maps.Keys(names)), " "), "futex syscall_0x1d6")
}

// callsOf adds the names of the calls in a trace. It includes the first process, its threads, and its children until
// they execute a program. Of a thread that is ended while its call waits, strace may see the kernel's mark for restarting a
// call (-512, ERESTARTSYS) in place of a number.
func callsOf(trace string, names map[string]bool) {
	first, _, _ := strings.Cut(trace, " ")
	ours, forked := map[string]bool{first: true}, map[string]bool{}
	begun := map[string]string{} // arguments of a call that has not returned, by process
	lines := strings.Split(trace, "\n")
	for _, line := range lines { // a child may run before the call that creates it returns
		m := made.FindStringSubmatch(line)
		if r := resumed.FindStringSubmatch(line); r != nil {
			m = []string{"", r[1], r[2], begun[r[1]] + r[3]}
		} else if m != nil {
			begun[m[1]] = m[3]
		}
		if m == nil || !strings.HasPrefix(m[2], "clone") || !ours[m[1]] {
			continue
		}
		if child := returned.FindStringSubmatch(m[3]); child != nil {
			thread := strings.Contains(m[3], "CLONE_THREAD")
			ours[child[1]], forked[child[1]] = thread, !thread
		}
	}
	for _, line := range lines {
		m := made.FindStringSubmatch(line)
		if m == nil || !ours[m[1]] && !forked[m[1]] || strings.HasPrefix(m[2], "syscall_0xffffffff") {
			continue
		}
		names[m[2]] = true
		if m[2] == "execve" {
			forked[m[1]] = false
		}
	}
}
