package cniexec_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
)

// A plugin that hangs outlives its killed caller. It is ended at its limit, with the child that inherited the lock.
func TestHangingPluginOfKilledCallerIsEndedAtItsLimit(t *testing.T) {
	zombie := exec.Command("true") // a plugin that has ended, which the list of holders may still have
	must(t, zombie.Start(), unix.Waitid(unix.P_PID, zombie.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	for name, c := range map[string]struct {
		plugin string
		limit  time.Duration
		alive  bool // the caller
		ends   bool
	}{
		"hangs":                  {"echo >begun; read x <goon", 0, false, true},
		"hangs in a child":       {"(echo >begun; read x <goon) & wait", 0, false, true},
		"is within its limit":    {"echo >begun; read x <goon", time.Hour, false, false},
		"has a caller":           {"echo >begun; read x <goon", 0, true, false},
		"has another attachment": {"export CNIEXEC_TEST_ATTACHMENT=other; exec sh -c 'echo >begun; read x <goon'", 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			lock := lockedFile(t)
			plugin := script(t, c.plugin)
			begun, goOn := fifo(t, plugin, "begun"), fifo(t, plugin, "goon")
			caller := exec.Command("/proc/self/exe")
			caller.Env, caller.ExtraFiles = append(os.Environ(), pluginEnv+"="+plugin), []*os.File{lock}
			must(t, caller.Start())
			lock.Close()
			must(t, hear(begun))
			end := func() {
				must(t, caller.Process.Kill())
				_ = caller.Wait() // was killed
			}
			if !c.alive {
				end()
			}
			ended, err := cniexec.EndAbandoned(append(holders(t, lock.Name()), store.Process{ID: zombie.Process.Pid}), mark, c.limit)
			must(t, err)
			difftest.Same(t, "ended, and the lock is free", []bool{ended, free(t, lock.Name())}, []bool{c.ends, c.ends})
			if c.alive {
				end()
			}
			if !c.ends {
				must(t, tell(goOn))
			}
		})
	}
	must(t, zombie.Wait())
}

func TestPluginThatIgnoresSIGTERMIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 10 s")
	}
	lock := lockedFile(t)
	plugin := exec.Command("sh", "-c", "trap '' TERM; echo; while :; do read x; done")
	plugin.Env, plugin.ExtraFiles = []string{mark}, []*os.File{lock}
	out, err := plugin.StdoutPipe()
	must(t, err)
	in, err := plugin.StdinPipe()
	must(t, err)
	defer in.Close()
	must(t, plugin.Start())
	lock.Close()
	_, err = out.Read(make([]byte, 1))
	must(t, err)
	ended, err := cniexec.EndAbandoned(holders(t, lock.Name()), mark, 0)
	must(t, err)
	difftest.Same(t, "ended", ended, true)
	difftest.Says(t, plugin.Wait(), "signal: killed")
}

// leaderEnv makes the test binary a process whose first thread has ended: the kernel has its environment no more under
// the process's ID, and a pidfd does not report its end. Each process is in this state for a moment when it ends.
const leaderEnv = "CNIEXEC_TEST_LEADER"

func init() {
	if os.Getenv(leaderEnv) == "" {
		return
	}
	go func() {
		for {
			if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", os.Getpid())); err != nil {
				break
			}
		}
		fmt.Println("begun")
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // only this thread; an init function runs in the first one
}

func TestEndingProcessIsNoError(t *testing.T) {
	plugin := exec.Command("/proc/self/exe")
	plugin.Env = []string{leaderEnv + "=1", mark}
	out, err := plugin.StdoutPipe()
	must(t, err)
	in, err := plugin.StdinPipe()
	must(t, err)
	must(t, plugin.Start())
	_, err = out.Read(make([]byte, 1))
	must(t, err)
	files := len(difftest.Names(t, "/proc/self/fd"))
	ended, err := cniexec.EndAbandoned([]store.Process{{ID: plugin.Process.Pid, Name: "plugin"}}, mark, time.Hour)
	if now := len(difftest.Names(t, "/proc/self/fd")); now > files { // fewer if the collector closes one of another test
		t.Errorf("%d files are left open", now-files)
	}
	must(t, err, in.Close(), plugin.Wait())
	difftest.Same(t, "ended", ended, false)
}

func TestProcessThatCannotBeWatchedIsAnError(t *testing.T) {
	ended, err := cniexec.EndAbandoned([]store.Process{{ID: -1, Name: "plugin"}}, mark, 0)
	difftest.Says(t, err, "process -1 (plugin): pidfd_open")
	difftest.Same(t, "ended", ended, false)
}

func holders(t *testing.T, path string) []store.Process {
	t.Helper()
	_, err := store.Lock(t.Context(), path, 0)
	return difftest.As[*store.BusyError](t, err).Holders
}
