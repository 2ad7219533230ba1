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

	"devinfo-cni.io/pkg/link/linktest"
)

const goFile = "/run/go"

// slow is a child that does not end its ADD before goFile exists.
const slow = `{"type": "child", "play": {"until": "` + goFile + `"}}`

// atChild starts an ADD and waits until the slow child runs.
func atChild(t *testing.T, cmd *exec.Cmd) (stdout *bytes.Buffer) {
	t.Helper()
	if err := os.RemoveAll(goFile); err != nil {
		t.Fatal(err)
	}
	stdout = new(bytes.Buffer)
	cmd.Stdout = stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 2 * time.Minute
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the child runs", func() bool { return read(t, childLog) == "ADD\n" })
	return stdout
}

func letGo(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(goFile, nil, 0o644); err != nil {
		t.Fatal(err)
	}
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

func TestSignalLetsTheChildEndAndUndoesAll(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			preparedInfo(t, prepared)
			cmd := devinfo("ADD", pod, delegates(bridgeConf, slow, `{"type": "tuning", "mtu": 1400}`))
			stdout := atChild(t, cmd)
			for range 2 { // the second must not cut the clean-up short
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				taken(t, cmd.Process.Pid)
			}
			same(t, "calls of the child after the signal", read(t, childLog), "ADD\n")
			letGo(t)
			_ = cmd.Wait()
			answer{cmd.ProcessState.ExitCode(), stdout.String(), ""}.fails(t, 11, fmt.Sprintf("interrupted by signal %q", sig))
			same(t, "calls of the child", childCalls(t), "ADD\nADD ends\nDEL\n")
			same(t, "device-info file", read(t, infoFile), prepared)
			same(t, "our files", files(t, stateDir), "")
			same(t, "addresses", addresses(t), "")
			same(t, "interfaces in the pod", podLinks(t, pod), "")
		}
	})
}

// A terminal sends the signal to its whole process group. A child has one of its own: it
// ends what it does, and then all is undone.
func TestSignalToAllUndoesAll(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		cmd := devinfo("ADD", pod, delegates(bridgeConf, slow))
		stdout := atChild(t, cmd)
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		taken(t, cmd.Process.Pid)
		letGo(t)
		_ = cmd.Wait()
		answer{cmd.ProcessState.ExitCode(), stdout.String(), ""}.fails(t, 11, `interrupted by signal "terminated"`)
		same(t, "calls of the child", childCalls(t), "ADD\nADD ends\nDEL\n")
		same(t, "interfaces in the pod", podLinks(t, pod), "")
		nothingLeft(t)
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
	if err := syscall.Kill(cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if whole { // as when a container or a systemd unit is killed
		for _, child := range children {
			pid, err := strconv.Atoi(child)
			if err == nil {
				err = syscall.Kill(pid, syscall.SIGKILL)
			}
			if err != nil {
				t.Fatal(err)
			}
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
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		for _, whole := range []bool{true, false} {
			conf := delegates(bridgeConf, slow)
			killed(t, pod, conf, whole)
			same(t, "interfaces in the pod after the kill", podLinks(t, pod), "net1")
			call(t, "DEL", pod, conf).ok(t)
			same(t, "calls of the child", childCalls(t), "DEL\n")
			same(t, "interfaces in the pod", podLinks(t, pod), "")
			nothingLeft(t)
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
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		conf := delegates(bridgeConf, slow)
		killed(t, pod, conf, true)
		letGo(t)
		call(t, "ADD", pod, conf).ok(t)
		same(t, "calls of the child", childCalls(t), "DEL\nADD\nADD ends\n")
		same(t, "addresses", addresses(t), "10.1.2.3") // host-local does not give the freed one out at once
		same(t, "device-info file", read(t, infoFile), vfFile)
		call(t, "DEL", pod, conf).ok(t)
		nothingLeft(t)
	})
}

// The plugin dies right after a child has ended.
func TestKillBetweenChildren(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		conf := delegates(bridgeConf, `{"type": "child", "play": {"kill": true}}`, `{"type": "child"}`)
		if a := call(t, "ADD", pod, conf); a.exit != -1 {
			t.Fatalf("exit code %d, want a kill", a.exit)
		}
		same(t, "calls of the children", childCalls(t), "ADD\n")
		call(t, "GC", "", `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "cni.dev/valid-attachments": []}`).ok(t)
		same(t, "calls of the children", childCalls(t), "DEL\nDEL\n")
		same(t, "interfaces in the pod", podLinks(t, pod), "")
		nothingLeft(t)
	})
}

// Wherever the plugin and its children are killed, DEL cleans all and ADD works.
func TestKillAtAnyMoment(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		sweep := func(conf string, step time.Duration, steps int) {
			died := 0
			for n := range steps {
				cmd := devinfo("ADD", pod, conf)
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(n) * step)
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
				if cmd.Wait() != nil {
					died++
				}
				call(t, "DEL", pod, conf).ok(t)
				same(t, fmt.Sprintf("interfaces in the pod, killed after %v", time.Duration(n)*step), podLinks(t, pod), "")
				nothingLeft(t)
			}
			t.Logf("%d of %d ADDs were killed in time", died, steps)
			call(t, "ADD", pod, conf).ok(t)
			same(t, "device-info file", read(t, infoFile), vfFile)
			call(t, "DEL", pod, conf).ok(t)
			nothingLeft(t)
		}
		sweep(standalone(infoFile), 200*time.Microsecond, 40)
		sweep(delegates(bridgeConf), 3*time.Millisecond, 30)
	})
}

// Nobody reads the result: the runtime has died.
func TestClosedStandardOutputUndoesAll(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		for _, conf := range []string{delegates(bridgeConf, `{"type": "child"}`), standalone(infoFile)} {
			preparedInfo(t, prepared)
			cmd := devinfo("ADD", pod, conf)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			cmd.Stdout = w
			err = cmd.Run()
			w.Close()
			if cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("%v, want exit code 1", err)
			}
			same(t, "device-info file", read(t, infoFile), prepared)
			same(t, "our files", files(t, stateDir), "")
			same(t, "addresses", addresses(t), "")
			same(t, "interfaces in the pod", podLinks(t, pod), "")
		}
		same(t, "calls of the child", childCalls(t), "ADD\nDEL\n")
	})
}

// Nobody reads the log either; that is no reason to fail.
func TestClosedStandardErrorIsNoFailure(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		cmd := devinfo("ADD", pod, chained(pod, `"unheardOf": 1, "deviceID": "`+vf+`",`))
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
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
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		const leases = stateDir + "/leases/file/net-c0ffee_net1/"
		lease := func(of string) {
			check(os.MkdirAll(leases, 0o700))
			check(os.Symlink("../../../attachments/"+of, leases+of))
		}
		lease("net@c0ffee@net1")
		call(t, "DEL", pod, standalone(infoFile)).ok(t)
		nothingLeft(t)
		lease("net@another@net1")
		call(t, "DEL", pod, standalone(infoFile)).ok(t)
		same(t, "leases", files(t, stateDir), leases+"net@another@net1")
	})
}
