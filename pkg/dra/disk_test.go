package dra_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// inNamespace runs the test again in a user namespace, where it may mount; true is there.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const key = "DRA_TEST_IN_NAMESPACE"
	if os.Getenv(key) != "" {
		return true
	}
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
	return false
}

// onSmallDisk puts the state on a file system of its own; remount changes its flags.
func (r *rig) onSmallDisk(t *testing.T) (remount func(flags uintptr)) {
	t.Helper()
	must(t, os.Mkdir(r.options.StateDir, 0o700))
	must(t, syscall.Mount("tmpfs", r.options.StateDir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() {
		if r.agent != nil {
			r.stop()
		}
		must(t, syscall.Unmount(r.options.StateDir, 0)) // which fails if a file is still open
	})
	return func(flags uintptr) {
		must(t, syscall.Mount("", r.options.StateDir, "", syscall.MS_REMOUNT|flags, ""))
	}
}

func TestAFullDiskRefusesWhatIsNewAndHoldsUpNothingOld(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	r := newRig(t)
	r.onSmallDisk(t)
	agent := r.start()
	old, next := r.sandbox("s1", "pod"), r.sandbox("s2", "pod2")
	r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}), r.claimOf("b", "u2", "pod2", want{"x", "net1", ""}))
	must(t, agent.RunPodSandbox(t.Context(), old))

	fill := filepath.Join(r.options.StateDir, "fill")
	if err := os.WriteFile(fill, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	if _, err := agent.Prepare(t.Context(), r.claimOf("c", "u3", "pod3", want{"x", "net1", ""})); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if err := agent.RunPodSandbox(t.Context(), next); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	must(t, agent.StopPodSandbox(t.Context(), old))
	if got, want := r.told(), []string{"ADD s1 net1", "DEL s1 net1"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	must(t, agent.Unprepare(t.Context(), "u1"))
	must(t, agent.Unprepare(t.Context(), "u3"))

	must(t, os.Remove(fill))
	must(t, agent.RunPodSandbox(t.Context(), next))
	r.expectThere("s2_net1")
}

func TestAReadOnlyDiskRefusesWhatIsNewAndKeepsWhatIsOwed(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	r := newRig(t)
	remount := r.onSmallDisk(t)
	agent := r.start()
	sb := r.sandbox("s1", "pod")
	r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
	must(t, agent.RunPodSandbox(t.Context(), sb))

	remount(syscall.MS_RDONLY)
	if err := agent.Ready(); !errors.Is(err, syscall.EROFS) {
		t.Errorf("got %v", err)
	}
	if _, err := agent.Prepare(t.Context(), r.claimOf("c", "u3", "pod3", want{"x", "net1", ""})); !errors.Is(err, syscall.EROFS) {
		t.Errorf("got %v", err)
	}
	must(t, agent.StopPodSandbox(t.Context(), sb))
	r.expectThere()
	if err := agent.Unprepare(t.Context(), "u1"); !errors.Is(err, syscall.EROFS) {
		t.Errorf("got %v", err)
	}

	remount(0)
	agent = r.start() // what is on disk owes the DEL still
	if agent.Census().Phases["Added"] != 1 {
		t.Errorf("got %v", agent.Census())
	}
	must(t, agent.Unprepare(t.Context(), "u1"))
	r.expectNothing()
}
