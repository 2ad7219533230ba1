package kernel_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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

// killed runs an ADD that is killed while its child runs, or by it.
func killed(t *testing.T, pod, conf string, whole bool) {
	t.Helper()
	cmd := devinfo("ADD", pod, conf)
	atChild(t, cmd)
	var children []string
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	for _, task := range tasks {
		children = append(children, strings.Fields(read(t, task))...)
	}
	must(t, syscall.Kill(cmd.Process.Pid, syscall.SIGKILL))
	if whole { // as when a container or a systemd unit is killed
		for _, child := range children {
			pid, err := strconv.Atoi(child)
			if err == nil {
				err = syscall.Kill(pid, syscall.SIGKILL)
			}
			must(t, err)
		}
	}
	if !whole { // the child outlives the plugin
		letGo(t)
		eventually(t, "the child ends", func() bool { return strings.HasSuffix(read(t, childLog), "ADD ends\n") })
	}
	_ = cmd.Wait()
	childCalls(t)
	if err := os.Remove(infoFile); err != nil && whole { // written before the child ran
		t.Error(err)
	}
}

func TestDelAfterKillCleansAll(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		for _, whole := range []bool{true, false} {
			conf := delegates(bridgeConf, slow)
			killed(t, pod, conf, whole)
			same(t, "interfaces in the pod after the kill", podLinks(t, pod), "net1")
			call(t, "DEL", pod, conf).ok(t)
			same(t, "calls of the child", childCalls(t), "DEL\n")
			nothingLeft(t, pod)
			letGo(t)
			call(t, "ADD", pod, conf).ok(t)
			call(t, "CHECK", pod, conf).ok(t)
			call(t, "DEL", pod, conf).ok(t)
			same(t, "calls of the child", childCalls(t), "ADD\nADD ends\nCHECK\nDEL\n")
			nothingLeft(t)
		}
	})
}

func TestAddAfterKillCleansUpFirst(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		conf := delegates(bridgeConf, slow)
		killed(t, pod, conf, true)
		letGo(t)
		call(t, "ADD", pod, conf).ok(t)
		same(t, "calls of the child", childCalls(t), "DEL\nADD\nADD ends\n")
		same(t, "addresses", addresses(t), "10.1.2.3") // host-local does not give the freed one out at once
		same(t, "device-info file", read(t, infoFile), vfFile)
		delLeavesNothing(t, pod, conf)
	})
}

// The plugin dies right after a child has ended.
func TestKillBetweenChildren(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		conf := delegates(bridgeConf, `{"type": "child", "play": {"kill": true}}`, `{"type": "child"}`)
		if a := call(t, "ADD", pod, conf); a.exit != -1 {
			t.Fatalf("exit code %d, want a kill", a.exit)
		}
		same(t, "calls of the children", childCalls(t), "ADD\n")
		call(t, "GC", "", `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "cni.dev/valid-attachments": []}`).ok(t)
		same(t, "calls of the children", childCalls(t), "DEL\nDEL\n")
		nothingLeft(t, pod)
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

// After a power failure a claim may be there, and no entry to tell of it.
func TestDelRemovesALeaseWithoutEntry(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const leases = stateDir + "/leases/file/net-c0ffee_net1/"
		lease := func(of string) {
			must(t, os.MkdirAll(leases, 0o700))
			must(t, os.Symlink("../../../attachments/"+of, leases+of))
		}
		lease("net@c0ffee@net1")
		delLeavesNothing(t, pod, standalone(infoFile))
		lease("net@another@net1")
		call(t, "DEL", pod, standalone(infoFile)).ok(t)
		same(t, "leases", files(t, stateDir), leases+"net@another@net1")
	})
}
