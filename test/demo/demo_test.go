package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

func TestDemoLeavesNoStateBehind(t *testing.T) {
	demo := filepath.Join(t.TempDir(), "demo")
	undertest.Programs(t, demo, "", ".")
	undertest.Peers(t, "cnitool", "macvlan")
	code, output := run(t, demo, 0, 0)
	if strings.Contains(output, "no namespaces") && os.Getenv("DEVINFO_NETNS") != "must" {
		t.Skip(strings.TrimSpace(output))
	}
	if code != 0 {
		t.Errorf("exit code %d\n%s", code, output)
	}
	for sig, delays := range map[syscall.Signal][]time.Duration{
		syscall.SIGINT: {2, 20, 60, 100}, syscall.SIGTERM: {5, 40, 80}, syscall.SIGKILL: {30, 70},
	} {
		for _, after := range delays {
			t.Run(fmt.Sprintf("%v after %d ms", sig, after), func(t *testing.T) {
				code, output := run(t, demo, sig, after*time.Millisecond)
				if code == 0 && !strings.Contains(output, "nothing of it is left") { // the demo ended before the signal
					t.Errorf("exit code 0\n%s", output)
				}
			})
		}
	}
}

// run runs the demo, interrupts it, and checks that no process or file of it remains.
func run(t *testing.T, demo string, sig syscall.Signal, after time.Duration) (code int, output string) {
	t.Helper()
	tmp := t.TempDir()
	var text bytes.Buffer
	cmd := exec.Command(demo, "-bin", undertest.Peers(t), "-hosts", "../../testdata/hosts")
	cmd.Stdout, cmd.Stderr = &text, &text
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // to find its processes by session
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	difftest.Must(t, cmd.Start())
	if sig != 0 {
		time.AfterFunc(after, func() { _ = cmd.Process.Signal(sig) })
	}
	_ = cmd.Wait()    // the exit code is returned
	var left []string // things that are left behind
	defer func() {
		if len(left) > 0 {
			t.Logf("left behind: %q", left)
		}
	}()
	// Killed processes may take a moment to end.
	difftest.Eventually(t, "gone", func() bool { left = leftovers(t, cmd.Process.Pid, tmp); return len(left) == 0 })
	return cmd.ProcessState.ExitCode(), text.String()
}

// leftovers returns the names that the demo uses and that still exist.
func leftovers(t *testing.T, session int, tmp string) (left []string) {
	t.Helper()
	links, err := net.Interfaces()
	difftest.Must(t, err)
	for _, l := range links {
		if slices.Contains([]string{"demo0", "demo1", ifName}, l.Name) {
			left = append(left, "interface "+l.Name)
		}
	}
	for _, pattern := range []string{tmp + "/*", own, pod, "/run/k8s.cni.cncf.io/devinfo/cni/*_" + ifName, "/var/lib/cni/*/*-cnitool-*-" + ifName} {
		files, err := filepath.Glob(pattern)
		difftest.Must(t, err)
		left = append(left, files...)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	difftest.Must(t, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, own) || strings.Contains(line, pod) {
			left = append(left, "mount "+line)
		}
	}
	return append(left, processes(t, session)...)
}

// processes returns the running processes of a session.
func processes(t *testing.T, session int) (list []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	difftest.Must(t, err)
	for _, file := range all {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest) // state, parent, group, session
		if len(fields) > 3 && fields[0] != "Z" && fields[3] == fmt.Sprint(session) {
			list = append(list, "process "+string(stat))
		}
	}
	return list
}
