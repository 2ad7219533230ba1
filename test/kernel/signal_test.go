package kernel_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const goFile = "/run/go"

// slow is a delegate whose ADD waits until goFile exists.
const slow = `{"type": "child", "play": {"until": "` + goFile + `"}}`

// atChild starts an ADD and waits until the slow delegate runs.
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

func releaseChild(t *testing.T) {
	t.Helper()
	must(t, os.WriteFile(goFile, nil, 0o644))
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

// A terminal sends the signal to its process group. A delegate has its own group, so it runs to its end before ADD
// undoes it.
func TestSignalLetsDelegateEndAndUndoesADD(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		for _, c := range []struct {
			sig syscall.Signal
			to  int // 1 = the process, -1 = its group
		}{{syscall.SIGTERM, 1}, {syscall.SIGINT, 1}, {syscall.SIGINT, -1}} {
			preparedInfo(t)
			cmd := devinfo("ADD", pod, delegates(bridgeConf, slow, `{"type": "tuning", "mtu": 1400}`))
			stdout := atChild(t, cmd)
			for range 2 { // the second signal must not stop the clean-up
				must(t, syscall.Kill(c.to*cmd.Process.Pid, c.sig))
				taken(t, cmd.Process.Pid)
			}
			same(t, "calls of the child after the signal", read(t, childLog), "ADD\n")
			releaseChild(t)
			_ = cmd.Wait()
			answer{cmd.ProcessState.ExitCode(), stdout.String(), ""}.fails(t, 11, fmt.Sprintf("interrupted by signal %q", c.sig))
			same(t, "calls of the child", childCalls(t), "ADD\nADD ends\nDEL\n")
			asPrepared(t, pod)
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

// childLog is the file where the child plugin logs its calls, one per line.
const childLog = "/run/child.log"

// A play tells the child plugin what to do on ADD. It is part of the plugin's configuration: {"type": "child",
// "play": {"until": "/run/go"}}.
type play struct {
	Until string `json:"until"` // wait until this file exists
}

// playChild is the child plugin: the test binary under the name "child".
func playChild() {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	stdin, err := io.ReadAll(os.Stdin)
	must(err)
	var conf struct {
		CNIVersion    string          `json:"cniVersion"`
		RuntimeConfig json.RawMessage `json:"runtimeConfig"`
		PrevResult    json.RawMessage `json:"prevResult"`
		Play          play            `json:"play"`
	}
	must(json.Unmarshal(stdin, &conf))
	verb := os.Getenv("CNI_COMMAND")
	must(note(verb, os.Getenv("CNI_ARGS"), string(conf.RuntimeConfig)))
	if verb != "ADD" {
		return
	}
	if conf.Play.Until != "" {
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if _, err := os.Stat(conf.Play.Until); err == nil {
				break
			}
		}
		must(note("ADD ends"))
	}
	if conf.PrevResult != nil {
		fmt.Println(string(conf.PrevResult))
	} else {
		fmt.Printf(`{"cniVersion": %q, "interfaces": [{"name": %q, "sandbox": %q}]}`+"\n",
			conf.CNIVersion, os.Getenv("CNI_IFNAME"), os.Getenv("CNI_NETNS"))
	}
}

func note(words ...string) error {
	log, err := os.OpenFile(childLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	_, err = fmt.Fprintln(log, strings.TrimSpace(strings.Join(words, " ")))
	return err
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
		nodeSettings(t, map[string]any{"logFile": "/run/log"})
		must(t, os.WriteFile("/run/victim", nil, 0o600))
		oddities := map[string]func(string) error{
			"named pipe": oddities["named pipe"], "directory": oddities["directory"],
			"link":      func(path string) error { return os.Symlink("/run/victim", path) },
			"hard link": func(path string) error { return os.Link("/run/victim", path) },
		}
		for what, why := range map[string]string{
			"named pipe": `open /run/log: no such device or address`,
			"directory":  `open /run/log: is a directory`,
			"link":       `open /run/log: too many levels of symbolic links`,
			"hard link":  `/run/log: must be a regular file without other hard links`,
		} {
			must(t, os.RemoveAll("/run/log"))
			must(t, oddities[what]("/run/log"))
			for _, verb := range []string{"ADD", "CHECK", "DEL"} {
				a := call(t, verb, pod, standalone)
				a.ok(t)
				if !strings.Contains(a.warnings(), `"cannot open the log file" error="`+why+`"`) {
					t.Errorf("%s: warnings: %s", verb, a.warnings())
				}
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
		defer mount(t, "/run/full", "size=4096", 0)()
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
			if !strings.Contains(log, "level=WARN") {
				t.Errorf("logFile %s: the other log says %q", logFile, log)
			}
		}
	})
}
