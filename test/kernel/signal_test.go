package kernel_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

const goFile = "/run/go"

// slow is a child that does not end its ADD before goFile exists.
const slow = `{"type": "child", "play": {"until": "` + goFile + `"}}`

// atChild starts an ADD and waits until the slow child runs.
func atChild(t *testing.T, cmd *exec.Cmd) (stdout *bytes.Buffer) {
	t.Helper()
	must(t, os.RemoveAll(goFile))
	stdout = new(bytes.Buffer)
	cmd.Stdout = stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 2 * time.Minute
	must(t, cmd.Start())
	eventually(t, "the child runs", func() bool { return read(t, childLog) == "ADD\n" })
	return stdout
}

func letGo(t *testing.T) {
	t.Helper()
	must(t, os.WriteFile(goFile, nil, 0o644))
}

// taken waits until a process that waits for its child has taken the signals that it was
// sent: none is pending, and all its threads sleep again, see proc_pid_status(5).
func taken(t *testing.T, pid int) {
	t.Helper()
	idle := regexp.MustCompile(`(?s)State:\tS.*SigPnd:\t0+\nShdPnd:\t0+\n`)
	eventually(t, "the signal is taken", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		for _, thread := range threads {
			if status, err := os.ReadFile(thread); err == nil && !idle.Match(status) {
				return false
			}
		}
		return err == nil && len(threads) > 0
	})
}

// A terminal sends the signal to its whole process group. A child has one of its own: it
// ends what it does, and then all is undone.
func TestSignalLetsTheChildEndAndUndoesAll(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		for _, c := range []struct {
			sig syscall.Signal
			to  int // 1: the process, -1: its group
		}{{syscall.SIGTERM, 1}, {syscall.SIGINT, 1}, {syscall.SIGINT, -1}} {
			preparedInfo(t, prepared)
			cmd := devinfo("ADD", pod, delegates(bridgeConf, slow, `{"type": "tuning", "mtu": 1400}`))
			stdout := atChild(t, cmd)
			for range 2 { // the second must not cut the clean-up short
				must(t, syscall.Kill(c.to*cmd.Process.Pid, c.sig))
				taken(t, cmd.Process.Pid)
			}
			same(t, "calls of the child after the signal", read(t, childLog), "ADD\n")
			letGo(t)
			_ = cmd.Wait()
			answer{cmd.ProcessState.ExitCode(), stdout.String(), ""}.fails(t, 11, fmt.Sprintf("interrupted by signal %q", c.sig))
			same(t, "calls of the child", childCalls(t), "ADD\nADD ends\nDEL\n")
			asPrepared(t, pod)
		}
	})
}

// Nobody reads the result: the runtime has died.
func TestClosedStandardOutputUndoesAll(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		for _, conf := range []string{delegates(bridgeConf, `{"type": "child"}`), standalone(infoFile)} {
			preparedInfo(t, prepared)
			cmd := devinfo("ADD", pod, conf)
			r, w, err := os.Pipe()
			must(t, err)
			r.Close()
			cmd.Stdout = w
			err = cmd.Run()
			w.Close()
			if cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("%v, want exit code 1", err)
			}
			asPrepared(t, pod)
		}
		same(t, "calls of the child", childCalls(t), "ADD\nDEL\n")
	})
}

// Nobody reads the log either; that is no reason to fail.
func TestClosedStandardErrorIsNoFailure(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		cmd := devinfo("ADD", pod, chained(pod, `"unheardOf": 1, "deviceID": "`+vf+`",`))
		r, w, err := os.Pipe()
		must(t, err)
		r.Close()
		cmd.Stderr = w
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
		w.Close()
		same(t, "device-info file", read(t, infoFile), vfFile)
	})
}
