package cniexec_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/safefile"
	"devinfo-cni.io/pkg/core/safefile/safefiletest"
	"devinfo-cni.io/test/difftest"
)

// lockedFile creates a file and locks it, as the caller of a plugin does.
func lockedFile(t *testing.T) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "entry")
	must(t, os.WriteFile(path, []byte("{}"), 0o400))
	return safefiletest.Lock(t, path)
}

// free reports whether no process holds the lock of a file.
func free(t *testing.T, path string) bool {
	t.Helper()
	f, err := safefile.Lock(t.Context(), path, 0)
	safefile.Unlock(f)
	if err != nil && !errors.As(err, new(*safefile.BusyError)) {
		t.Fatal(err)
	}
	return err == nil
}

// pluginEnv names a plugin. If it is set, the test binary runs that plugin instead of the tests.
const pluginEnv = "CNIEXEC_TEST_PLUGIN"

func TestMain(m *testing.M) {
	plugin := os.Getenv(pluginEnv)
	if plugin == "" {
		os.Exit(m.Run())
	}
	unset := os.Unsetenv(pluginEnv)
	_, err := (&cniexec.Exec{Inherit: os.NewFile(3, "lock")}).ExecPlugin(context.Background(), plugin, nil, os.Environ())
	if err = errors.Join(unset, err); err != nil {
		log.Fatal(err)
	}
}

// The plugin, or a child of it such as an IPAM plugin, keeps the lock until it ends.
func TestPluginKeepsLockIfCallerIsKilled(t *testing.T) {
	const work = "echo >begun; read x <goon; exec 3>&-; echo >ended"
	for name, text := range map[string]string{
		"itself":  work,
		"a child": fmt.Sprintf("(%s) & kill -KILL $$", work),
	} {
		t.Run(name, func(t *testing.T) {
			lock := lockedFile(t)
			plugin := script(t, text)
			begun, goOn, ended := fifo(t, plugin, "begun"), fifo(t, plugin, "goon"), fifo(t, plugin, "ended")
			caller := exec.Command("/proc/self/exe")
			caller.Env, caller.ExtraFiles = append(os.Environ(), pluginEnv+"="+plugin), []*os.File{lock}
			must(t, caller.Start())
			lock.Close()
			must(t, hear(begun))
			must(t, caller.Process.Kill())
			if err := caller.Wait(); err == nil {
				t.Fatal("the caller was not killed")
			}
			if free(t, lock.Name()) {
				t.Error("it is free")
			}
			must(t, tell(goOn))
			must(t, hear(ended))
			f, err := safefile.Lock(t.Context(), lock.Name(), time.Hour) // waits until the killed process is gone
			must(t, err)
			safefile.Unlock(f)
		})
	}
}

func TestDaemonInheritsLock(t *testing.T) {
	lock := lockedFile(t)
	plugin := script(t, "(read x <end; ls -l /proc/self/fd >fds; echo >ended) >/dev/null 2>&1 & echo {}")
	end, ended := fifo(t, plugin, "end"), fifo(t, plugin, "ended")
	_, err := call(t, &cniexec.Exec{Inherit: lock}, plugin, "ADD")
	must(t, err)
	must(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_UN)) // a caller does this after its plugin has ended
	if !free(t, lock.Name()) {
		t.Error("it is not free")
	}
	must(t, tell(end)) // the daemon is still running
	must(t, hear(ended))
	difftest.Contains(t, difftest.Read(t, filepath.Join(filepath.Dir(plugin), "fds")), lock.Name())
}

// With a limit, a plugin has a process group of its own.
func TestChildrenOfKilledPluginAreKilled(t *testing.T) {
	plugin := script(t, "(exec 4>alive; echo >begun; sleep 3600) >/dev/null 2>&1 & read x <goon; kill -KILL $$")
	alive, begun, goOn := fifo(t, plugin, "alive"), fifo(t, plugin, "begun"), fifo(t, plugin, "goon")
	gone := make(chan error, 1)
	go func() { gone <- hear(alive) }()
	told := make(chan error, 1)
	go func() { told <- errors.Join(hear(begun), tell(goOn)) }()
	_, err := call(t, &cniexec.Exec{Limit: time.Hour}, plugin, "ADD")
	expect(t, err, cniexec.ReasonDied, "signal: killed")
	must(t, errors.Join(<-told, <-gone))
}
