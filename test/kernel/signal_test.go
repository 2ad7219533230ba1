package kernel_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/difftest"
)

const (
	goFile    = "/run/go"
	waitsFile = "/run/waits"
	childLog  = "/run/child.log" // calls of the child and of the script, one per line

	// wait is a part of a script that waits until goFile exists.
	wait = `touch ` + waitsFile + `; until [ -e ` + goFile + ` ]; do sleep 0.01; done; echo waited >>` + childLog
)

// interrupted returns the answer of a call that gets signals while its delegate waits: the process, or its process group, as
// from a terminal. The delegate then goes on.
func interrupted(t *testing.T, verb, pod, conf string, sig syscall.Signal, group bool, times int) answer {
	t.Helper()
	must(t, os.RemoveAll(goFile), os.RemoveAll(waitsFile))
	cmd := devinfo(verb, pod, conf)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &stdout, &stderr, &syscall.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	eventually(t, "the delegate waits", func() bool { _, err := os.Stat(waitsFile); return err == nil })
	to := cmd.Process.Pid
	if group {
		to = -to
	}
	for range times {
		must(t, syscall.Kill(to, sig))
		taken(t, cmd.Process.Pid)
	}
	must(t, os.WriteFile(goFile, nil, 0o644))
	_ = cmd.Wait()
	return answer{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// taken waits until the process has handled its signals: none is pending, and all its threads sleep
// (proc_pid_status(5)). The process must be one that waits for its child.
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

// A delegate has its own process group, so it runs to its end before ADD undoes it. The second signal must not stop that.
func TestSignalLetsDelegateEndAndUndoesADD(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		script(t, wait+"\n"+result, "")
		for _, c := range []struct {
			sig   syscall.Signal
			group bool
		}{{syscall.SIGTERM, false}, {syscall.SIGINT, false}, {syscall.SIGINT, true}} {
			preparedInfo(t)
			a := interrupted(t, "ADD", pod, delegates(bridgeConf, scripted, `{"type": "tuning", "mtu": 1400}`), c.sig, c.group, 2)
			a.fails(t, 11, fmt.Sprintf("interrupted by signal %q", c.sig))
			same(t, "calls of the delegate", childCalls(t), "ADD\nwaited\nDEL\n")
			asPrepared(t, pod)
		}
	})
}

// DEL, CHECK and GC run to their end after one or two signals.
func TestSignalLetsOtherVerbsFinish(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		script(t, result, wait)
		conf := delegates(scripted, bridgeConf)
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			for times := range 3 {
				for _, verb := range []string{"CHECK", "DEL", "GC"} {
					if there := files(t, stateDir) != ""; !there {
						call(t, "ADD", pod, conf).ok(t)
					}
					interrupted(t, verb, pod, forGC(conf), sig, false, times).ok(t)
					if verb != "CHECK" {
						nothingLeft(t, pod)
					}
				}
			}
		}
	})
}

// unread returns a pipe whose other end is closed.
func unread(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err, r.Close())
	t.Cleanup(func() { w.Close() })
	return w
}

// The runtime has died and does not read the result.
func TestClosedStandardOutputUndoesADD(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		for _, conf := range []string{delegates(bridgeConf, `{"type": "child"}`), standalone} {
			preparedInfo(t)
			cmd := devinfo("ADD", pod, conf)
			cmd.Stdout = unread(t)
			err := cmd.Run()
			if cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("%v, want exit code 1", err)
			}
			asPrepared(t, pod)
		}
		same(t, "calls of the child", childCalls(t), "ADD\nDEL\n")
	})
}

// A closed log must not make a call fail.
func TestClosedStandardErrorIsNoFailure(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		cmd := devinfo("ADD", pod, chained(pod, `"unheardOf": 1, "deviceID": "`+vf+`",`))
		cmd.Stderr = unread(t)
		must(t, cmd.Run())
		same(t, "device-info file", read(t, infoFile), vfFile)
	})
}

// playChild is the child plugin: the test binary under the name "child".
func playChild() {
	var conf struct {
		CNIVersion    string          `json:"cniVersion"`
		RuntimeConfig json.RawMessage `json:"runtimeConfig"`
		PrevResult    json.RawMessage `json:"prevResult"`
	}
	log, err := os.OpenFile(childLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err = cmp.Or(err, json.NewDecoder(os.Stdin).Decode(&conf)); err != nil {
		panic(err)
	}
	verb := os.Getenv("CNI_COMMAND")
	fmt.Fprintln(log, strings.TrimSpace(strings.Join([]string{verb, os.Getenv("CNI_ARGS"), string(conf.RuntimeConfig)}, " ")))
	switch {
	case verb != "ADD":
	case conf.PrevResult != nil:
		fmt.Println(string(conf.PrevResult))
	default:
		fmt.Printf(`{"cniVersion": %q, "interfaces": [{"name": %q, "sandbox": %q}]}`+"\n", conf.CNIVersion, os.Getenv("CNI_IFNAME"), os.Getenv("CNI_NETNS"))
	}
}

// childCalls returns the logged calls since the last call of childCalls.
func childCalls(t *testing.T) string {
	t.Helper()
	calls := read(t, childLog)
	must(t, os.RemoveAll(childLog))
	return calls
}

// A named pipe without a reader must not block calls, and a link must not lead to another file.
func TestLogFileMustBeRegularFileWithOneName(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const log, victim = "/run/log", "/run/victim"
		nodeSettings(t, map[string]any{"logFile": log})
		must(t, os.WriteFile(victim, nil, 0o600))
		for why, put := range map[string]func() error{
			`open /run/log: no such device or address`:                  func() error { return syscall.Mkfifo(log, 0o644) },
			`open /run/log: is a directory`:                             func() error { return os.Mkdir(log, 0o755) },
			`open /run/log: too many levels of symbolic links`:          func() error { return os.Symlink(victim, log) },
			`/run/log: must be a regular file without other hard links`: func() error { return os.Link(victim, log) },
		} {
			must(t, os.RemoveAll(log), put())
			for _, verb := range []string{"ADD", "CHECK", "DEL"} {
				a := call(t, verb, pod, standalone)
				a.ok(t)
				difftest.Contains(t, a.warnings(), `"cannot open the log file" error="`+why+`"`)
			}
			nothingLeft(t)
		}
	})
}

func TestFailedLogDoesNotSilenceOtherLog(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		must(t, err)
		defer full.Close()
		must(t, os.Mkdir("/run/full", 0o755), unix.Mount("tmpfs", "/run/full", "tmpfs", 0, "size=4096"))
		must(t, os.WriteFile("/run/full/filler", make([]byte, 4096), 0o600))
		conf := strings.Replace(standalone, "{", `{"devicID": "of which there is a warning", `, 1)
		for verb, logFile := range map[string]string{"ADD": "/run/full/log", "DEL": "/run/log"} {
			nodeSettings(t, map[string]any{"logFile": logFile})
			cmd := devinfo(verb, pod, conf)
			var stderr bytes.Buffer
			if cmd.Stderr = &stderr; logFile == "/run/log" {
				cmd.Stderr = full
			}
			must(t, cmd.Run())
			log := stderr.String()
			if logFile == "/run/log" {
				log = read(t, logFile)
			}
			difftest.Contains(t, log, "level=WARN")
		}
	})
}
