package main

import (
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
	for _, killed := range []time.Duration{0, 5, 30, 80} { // in ms; 0 = not
		tmp := t.TempDir()
		cmd := exec.Command(demo, "-bin", undertest.Peers(t, "cnitool", "macvlan"), "-hosts", "../../testdata/hosts")
		var output strings.Builder
		cmd.Stdout, cmd.Stderr = &output, &output
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // to find its processes by session
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
		difftest.Must(t, cmd.Start())
		if killed > 0 {
			time.AfterFunc(killed*time.Millisecond, func() { _ = cmd.Process.Kill() })
		}
		err := cmd.Wait()
		if strings.Contains(output.String(), "no namespaces") && os.Getenv("DEVINFO_NETNS") != "must" {
			t.Skip(output.String())
		}
		if killed == 0 && (err != nil || !strings.Contains(output.String(), "nothing of it is left")) {
			t.Errorf("%v\n%s", err, &output)
		}
		// Killed processes may take a moment to end.
		difftest.Eventually(t, "gone", func() bool { return leftovers(t, cmd.Process.Pid, tmp) == nil })
	}
}

// leftovers returns the processes and names of the demo that still exist.
func leftovers(t *testing.T, session int, tmp string) (left []string) {
	t.Helper()
	links, err := net.Interfaces()
	difftest.Must(t, err)
	for _, l := range links {
		if slices.Contains([]string{"demo0", "demo1", ifName}, l.Name) {
			left = append(left, l.Name)
		}
	}
	for _, pattern := range []string{tmp + "/*", own, pod, infos + "/*_" + ifName, "/var/lib/cni/*/*-cnitool-*-" + ifName} {
		files, err := filepath.Glob(pattern)
		difftest.Must(t, err)
		left = append(left, files...)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/stat")
	difftest.Must(t, err)
	for _, file := range processes {
		stat, _ := os.ReadFile(file) // it may have just ended
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest) // state, parent, group, session
		if len(fields) > 3 && fields[0] != "Z" && fields[3] == fmt.Sprint(session) {
			left = append(left, string(stat))
		}
	}
	return left
}
