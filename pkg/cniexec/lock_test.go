package cniexec_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/pkg/cniexec"
)

const patience = 5 * time.Minute

func lockFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "entry")
	must(t, os.WriteFile(path, []byte("{}"), 0o400))
	return path
}

// free says whether nobody has the lock.
func free(t testing.TB, lock string) bool {
	t.Helper()
	err := cniexec.Wait(t.Context(), lock, 0)
	if busy := (*cniexec.BusyError)(nil); err != nil && !errors.As(err, &busy) {
		t.Fatal(err)
	}
	return err == nil
}

func replace(lock string) error {
	return errors.Join(os.WriteFile(lock+"2", nil, 0o600), os.Rename(lock+"2", lock))
}

// hold locks a file as another process would: by an open file of its own.
func hold(t testing.TB, lock string) (release func()) {
	t.Helper()
	f, err := os.Open(lock)
	must(t, err)
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	return func() { f.Close() }
}

func TestALockIsHeldWhileAPluginRuns(t *testing.T) {
	lock := lockFile(t)
	plugin := script(t, "echo >begun; read x <goon; echo {}")
	begun, goOn := fifo(t, plugin, "begun"), fifo(t, plugin, "goon")
	ended := make(chan error, 1)
	go func() {
		_, err := call(t, &cniexec.Exec{Lock: lock}, plugin, "ADD")
		ended <- err
	}()
	hear(t, begun)
	if free(t, lock) {
		t.Error("it is free")
	}
	_, err := call(t, &cniexec.Exec{Lock: lock}, plugin, "DEL")
	expect(t, err, cniexec.ReasonBusy, plugin+": not run: an earlier plugin of this attachment still runs", "try again")
	tell(t, goOn)
	must(t, <-ended)
	if !free(t, lock) {
		t.Error("it is not free")
	}
}

// killedCaller runs a plugin by a process that is killed once it has begun.
func killedCaller(t *testing.T, lock, plugin, begun string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	caller := exec.Command(self)
	caller.Env = append(os.Environ(), roleEnv+"=caller:"+lock+":"+plugin)
	must(t, caller.Start())
	hear(t, begun)
	must(t, caller.Process.Kill())
	if err := caller.Wait(); err == nil {
		t.Fatal("the caller was not killed")
	}
}

// Whether it is the plugin that goes on or what that has started, such as its IPAM
// plugin, the next one is run after it.
func TestTheNextPluginWaitsForTheOneWhoseCallerWasKilled(t *testing.T) {
	const work = "echo >begun; read x <goon; echo ADD >>order"
	for name, text := range map[string]string{
		"itself":  work,
		"a child": fmt.Sprintf("(%s) & kill -KILL $$", work),
	} {
		t.Run(name, func(t *testing.T) {
			lock := lockFile(t)
			plugin := script(t, `if [ "$CNI_COMMAND" = DEL ]; then echo DEL >>order; exit; fi; `+text)
			begun, goOn := fifo(t, plugin, "begun"), fifo(t, plugin, "goon")
			killedCaller(t, lock, plugin, begun)
			err := cniexec.Wait(t.Context(), lock, 0)
			if err == nil || !strings.Contains(err.Error(), "still runs, process ") {
				t.Errorf("got %v", err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := call(t, &cniexec.Exec{Lock: lock, Wait: patience}, plugin, "DEL")
				ended <- err
			}()
			tell(t, goOn)
			must(t, <-ended)
			order, err := os.ReadFile(filepath.Join(filepath.Dir(plugin), "order"))
			must(t, err)
			if string(order) != "ADD\nDEL\n" {
				t.Errorf("got %q", order)
			}
		})
	}
}

func TestADaemonDoesNotKeepTheLock(t *testing.T) {
	lock := lockFile(t)
	plugin := script(t, "(read x <end; ls -l /proc/self/fd >fds; echo >ended) >/dev/null 2>&1 & echo {}")
	end, ended := fifo(t, plugin, "end"), fifo(t, plugin, "ended")
	_, err := call(t, &cniexec.Exec{Lock: lock}, plugin, "ADD")
	must(t, err)
	if !free(t, lock) {
		t.Error("it is not free")
	}
	tell(t, end) // it lives
	hear(t, ended)
	fds, err := os.ReadFile(filepath.Join(filepath.Dir(plugin), "fds"))
	must(t, err)
	if !strings.Contains(string(fds), lock) {
		t.Errorf("it did not inherit the lock: %s", fds)
	}
}

// One that has a limit has a process group of its own.
func TestAPluginThatIsKilledFreesTheLockAndTakesItsChildrenAlong(t *testing.T) {
	lock := lockFile(t)
	plugin := script(t, "(exec 4>alive; echo >begun; sleep 3600) >/dev/null 2>&1 & read x <goon; kill -KILL $$")
	alive, begun, goOn := fifo(t, plugin, "alive"), fifo(t, plugin, "begun"), fifo(t, plugin, "goon")
	gone := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(alive)
		gone <- err
	}()
	go func() {
		hear(t, begun)
		tell(t, goOn)
	}()
	_, err := call(t, &cniexec.Exec{Lock: lock, Limit: time.Hour}, plugin, "ADD")
	expect(t, err, cniexec.ReasonDied, "signal: killed")
	must(t, <-gone)
	if !free(t, lock) {
		t.Error("it is not free")
	}
}

func TestTheChildrenOfAPluginThatIsKilledKeepTheLock(t *testing.T) {
	lock := lockFile(t)
	plugin := script(t, "(read x <goon) >/dev/null 2>&1 & kill -KILL $$")
	goOn := fifo(t, plugin, "goon")
	_, err := call(t, &cniexec.Exec{Lock: lock}, plugin, "ADD")
	expect(t, err, cniexec.ReasonDied, "signal: killed")
	if free(t, lock) {
		t.Error("it is free")
	}
	tell(t, goOn)
	must(t, cniexec.Wait(t.Context(), lock, patience))
}

func TestAFileThatIsNotThereLocksNothing(t *testing.T) {
	for _, lock := range []string{"", filepath.Join(t.TempDir(), "none")} {
		must(t, cniexec.Wait(t.Context(), lock, 0))
		_, err := call(t, &cniexec.Exec{Lock: lock}, script(t, "echo {} >&3 || echo {}"), "ADD")
		must(t, err)
	}
}

func TestAFileThatCannotBeOpenedIsAnError(t *testing.T) {
	loop := filepath.Join(t.TempDir(), "loop")
	must(t, os.Symlink(loop, loop))
	if err := cniexec.Wait(t.Context(), loop, patience); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("got %v", err)
	}
	_, err := call(t, &cniexec.Exec{Lock: loop}, script(t, "echo {}"), "ADD")
	expect(t, err, cniexec.ReasonNode, "not run", loop)
}

func TestALockOnANamedPipeDoesNotHang(t *testing.T) {
	lock := fifo(t, filepath.Join(t.TempDir(), "x"), "entry")
	_, err := call(t, &cniexec.Exec{Lock: lock}, script(t, "echo {}"), "ADD")
	must(t, err)
}

func TestTheWaitHasALimit(t *testing.T) {
	lock := lockFile(t)
	defer hold(t, lock)()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := cniexec.Wait(t.Context(), lock, patience)
		var busy *cniexec.BusyError
		if !errors.As(err, &busy) || busy.Waited != patience || busy.Lock != lock || time.Since(began) != patience {
			t.Errorf("after %v: %#v", time.Since(began), err)
		}
		if want := fmt.Sprintf("process %d (", os.Getpid()); !strings.HasPrefix(busy.Holders, want) {
			t.Errorf("held by %q", busy.Holders)
		}
	})
}

func TestTheContextEndsTheWait(t *testing.T) {
	lock := lockFile(t)
	defer hold(t, lock)()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := cancelled(t)
		began := time.Now()
		time.AfterFunc(time.Minute, cancel)
		_, err := (&cniexec.Exec{Lock: lock, Wait: patience}).ExecPlugin(ctx, "/none", nil, nil)
		expect(t, err, cniexec.ReasonBusy, "/none: not run", "context canceled")
		if !errors.Is(err, ctx.Err()) || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestTheWaitEndsWithTheLock(t *testing.T) {
	for name, end := range map[string]func(lock string) error{
		"free":     func(string) error { return nil },
		"removed":  os.Remove,
		"replaced": replace,
	} {
		t.Run(name, func(t *testing.T) {
			lock := lockFile(t)
			release := hold(t, lock)
			defer release()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				time.AfterFunc(time.Minute, func() {
					must(t, end(lock))
					if name == "free" {
						release()
					}
				})
				must(t, cniexec.Wait(t.Context(), lock, patience))
				if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
					t.Errorf("after %v", took)
				}
			})
		})
	}
}

// What plugins do meanwhile is for the file that was there.
func TestTheFileMayBeReplacedWhileItIsLocked(t *testing.T) {
	lock := lockFile(t)
	done := make(chan error)
	for range 2 {
		go func() {
			var err error
			for range 500 {
				err = errors.Join(err, cniexec.Wait(t.Context(), lock, patience))
			}
			done <- err
		}()
	}
	go func() {
		var err error
		for range 500 {
			err = errors.Join(err, replace(lock))
		}
		done <- err
	}()
	for range 3 {
		must(t, <-done)
	}
}
