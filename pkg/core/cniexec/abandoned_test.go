package cniexec_test

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/host/store"
)

// A plugin that hangs outlives its killed caller. It is ended at its limit, with the child that inherited the lock.
func TestHangingPluginOfKilledCallerIsEndedAtItsLimit(t *testing.T) {
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
			ended, err := cniexec.EndAbandoned(holders(t, lock.Name()), mark, c.limit)
			must(t, err)
			if isFree := free(t, lock.Name()); ended != c.ends || isFree != c.ends {
				t.Errorf("ended: %v, the lock is free: %v, want %v", ended, isFree, c.ends)
			}
			if c.alive {
				end()
			}
			if !c.ends {
				must(t, tell(goOn))
			}
		})
	}
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
	if ended, err := cniexec.EndAbandoned(holders(t, lock.Name()), mark, 0); !ended || err != nil {
		t.Errorf("got %v, %v", ended, err)
	}
	if err := plugin.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("it ended with %v", err)
	}
}

func holders(t *testing.T, path string) []store.Process {
	t.Helper()
	_, err := store.Lock(t.Context(), path, 0)
	busy := new(store.BusyError)
	if !errors.As(err, &busy) || len(busy.Holders) == 0 {
		t.Fatalf("got %v", err)
	}
	return busy.Holders
}
