package process_test

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"devinfo-cni.io/pkg/host/process"
	"devinfo-cni.io/test/difftest"
)

var full = []string{"1:7"} // /dev/full

func TestProcessThatHasDeviceOpenIsFound(t *testing.T) {
	file, err := os.Open("/dev/full")
	if err != nil {
		t.Skip(err)
	}
	defer file.Close()
	holder := exec.Command("sleep", "60")
	holder.Stdin = file
	difftest.Must(t, holder.Start())
	defer func() { _, _ = holder.Process.Kill(), holder.Wait() }()
	found, err := process.Opened("/proc", full)
	difftest.Must(t, err)
	pids := map[int]string{}
	for _, h := range found {
		pids[h.PID] = h.Command
	}
	if pids[holder.Process.Pid] != "sleep" || pids[os.Getpid()] == "" {
		t.Errorf("found %v", found)
	}
}

// A directory in the place of a file, and a file in that of a directory, are errors of a read for root too. A process that
// has ended, or that this one may not read, is none.
func TestProcessThatCannotBeReadIsAnError(t *testing.T) {
	broken := map[string]func(process string) error{
		"fd":   func(p string) error { return os.WriteFile(p+"/fd", nil, 0o600) },
		"task": func(p string) error { return os.WriteFile(p+"/task", nil, 0o600) },
		"mountinfo": func(p string) error {
			return errors.Join(os.Mkdir(p+"/mountinfo", 0o700), os.MkdirAll(p+"/ns", 0o700), os.Symlink("mnt:[1]", p+"/ns/mnt"))
		},
		"ns/mnt": func(p string) error { return os.MkdirAll(p+"/ns/mnt", 0o700) },
		"ended":  func(string) error { return nil },
	}
	for what, breaks := range broken {
		proc := t.TempDir()
		difftest.Must(t, os.Mkdir(proc+"/7", 0o700), breaks(proc+"/7"))
		_, opened := process.Opened(proc, full)
		_, namespaces := process.Namespaces(proc)
		files := what == "fd" || what == "task"
		if (opened != nil) != files || (namespaces != nil) != (what != "ended") {
			t.Errorf("%s: %v, %v", what, opened, namespaces)
		}
	}
}

// A process whose mounts cannot be compared with the node's may be that of a pod.
func TestProcessWithUnknownMountsMayBeThatOfPod(t *testing.T) {
	proc := t.TempDir()
	difftest.Must(t, os.MkdirAll(proc+"/7/fd", 0o700))
	if err := os.Symlink("/dev/full", proc+"/7/fd/3"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	found, err := process.Opened(proc, full)
	difftest.Must(t, err)
	difftest.Equal(t, found, []process.Holder{{PID: 7, Pod: true}})
}

// A namespace may be kept by a mount alone, whose path mountinfo escapes.
func TestMountedNamespaceIsFound(t *testing.T) {
	proc := t.TempDir()
	difftest.Must(t, os.MkdirAll(proc+"/7/ns", 0o700), os.Symlink("mnt:[1]", proc+"/7/ns/mnt"), os.Mkdir(proc+"/7/root", 0o700),
		os.Symlink("/proc/self/ns/net", proc+`/7/root/a b\`), os.Symlink("/proc/self/ns/uts", proc+"/7/root/uts"),
		os.WriteFile(proc+"/7/mountinfo", []byte("1 0 0:4 / /run rw\n2 1 0:4 uts:[2] /uts rw\n3 1 0:4 net:[3] /uts rw\n4 1 0:4 net:[4] /a\\040b\\134 rw - nsfs nsfs rw\n"), 0o600))
	found, err := process.Namespaces(proc)
	difftest.Must(t, err)
	difftest.Equal(t, found, []string{proc + `/7/root/a b\`})
}

func TestDeviceWithoutNumberIsAnError(t *testing.T) {
	for _, text := range []string{"", "10", "a:b"} {
		if holders, err := process.Opened(t.TempDir(), []string{"1:7", text}); err == nil {
			t.Errorf("%q: %v", text, holders)
		}
	}
}
