package journal_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/journal"
)

// The test runs itself again in a user namespace, where it may mount a file
// system of six inodes: its root, two directories, and three for a Put.
func TestDropSucceedsOnAFullDiskAndARefusedPutLeavesNothing(t *testing.T) {
	const key = "JOURNAL_TEST_IN_NAMESPACE"
	if os.Getenv(key) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), key+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			if os.Getenv("DEVINFO_NETNS") == "must" {
				t.Fatalf("no user namespaces here: %v", err)
			}
			t.Skipf("no user namespaces here: %v", err)
		}
		if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes=6"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err) // a file is still open
		}
	}()
	j := journal.Open(dir, boot)
	put(t, j, key1, "f")
	fill := filepath.Join(dir, "fill")
	link(t, "x", fill) // the last inode
	if err := j.Drop(key1); err != nil {
		t.Error(err)
	}
	expectFiles(t, dir)
	// Two inodes are left: for the lock and the claim, not for the entry.
	if err := j.Put(&journal.Entry{Key: key1, File: "f"}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	expectFiles(t, dir)
	remove(t, fill)
	put(t, j, key1, "f")
}
