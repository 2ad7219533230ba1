package kernel_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	listed   = regexp.MustCompile("(?s)```\n(.*?)```")
	made     = regexp.MustCompile(`^(\d+) +(\w+)\((.*)`)
	resumed  = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>(.*)`)
	returned = regexp.MustCompile(` = (\d+)$`)
)

// Delegates and what they start are no part of it, but what a child does until it
// executes one is.
func TestSystemCallsAreTheListedOnes(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed: apt-get install strace")
	}
	list := listed.FindStringSubmatch(read(t, "../../docs/security.md"))
	if list == nil {
		t.Fatal("docs/security.md has no list")
	}
	onStage(t, func(t *testing.T, pod string) {
		process := ownProcess(t)
		traces := t.TempDir()
		wrapper := cniDir + "/traced"
		text := "#!/bin/sh\nexec " + strace + " -f -qq -o " + traces + "/$$ " + cniDir + "/devinfo\n"
		must(t, os.WriteFile(wrapper, []byte(text), 0o755))
		for _, conf := range []string{standalone(infoFile), delegates(`{"type": "child"}`), chained(pod, "")} {
			for _, netns := range []string{pod, process} {
				for _, verb := range []string{"STATUS", "ADD", "CHECK", "DEL", "GC"} {
					cmd := devinfo(verb, netns, conf)
					cmd.Path = wrapper
					finish(t, cmd) // whatever comes of it
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
			if !slices.Contains(strings.Fields(list[1]), name) {
				t.Errorf("%s is not in docs/security.md", name)
			}
		}
	})
}

// callsOf adds to names the calls of a trace, those of the first process, its threads,
// and its children until they execute something.
func callsOf(trace string, names map[string]bool) {
	first, _, _ := strings.Cut(trace, " ")
	ours, forked := map[string]bool{first: true}, map[string]bool{}
	begun := map[string]string{} // by process: the arguments of a call that has not returned
	lines := strings.Split(trace, "\n")
	for _, line := range lines { // a child may run before the call that makes it returns
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
		if m == nil || !ours[m[1]] && !forked[m[1]] {
			continue
		}
		names[m[2]] = true
		if m[2] == "execve" {
			forked[m[1]] = false
		}
	}
}
