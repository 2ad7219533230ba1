// Package cniexec runs CNI plugins: delegates and the networks of claims. An [Exec] is
// what libcni takes as its invoke.Exec; the protocol is that of the CNI specification,
// section 2, "Execution Protocol".
//
// Unlike libcni's own it limits what a plugin prints and how long it takes, does not
// wait for a daemon that has inherited the plugin's output, and says by an [Error] what
// went wrong. Each plugin also inherits a file that its caller has locked. A plugin whose
// caller was killed keeps that lock, so that the next call of the attachment can wait for
// its end: see [Exec.Inherit]. A [Network] is run by libcni with that.
package cniexec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/devinfo/shape"
)

// MaxOutput is how many bytes a plugin may print on its standard output.
const MaxOutput = 10_000_000

const (
	lastWords    = 10 * time.Second // for a plugin between SIGTERM and SIGKILL, and for its output after its end
	replacePause = 100 * time.Millisecond
	replaceTries = 50 // 5 s: an executable that is being written cannot be run
)

// usualPath is where plugins look for programs that they run, such as iptables.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Exec runs plugins. It implements invoke.Exec, and may be used concurrently. The
// zero value sets no limit in time, and drops what plugins say.
type Exec struct {
	version.PluginDecoder // Decode

	// Root is the root directory of the plugins, to which their paths are relative:
	// where a container has the host's mounted. "" is our own. It takes CAP_SYS_CHROOT.
	Root string
	// Limit is how long one plugin may run; 0 = for ever. It is ended by SIGTERM, and
	// 10 s later by SIGKILL, together with what it has started: it then has a process
	// group of its own, which signals to ours, such as a terminal's, do not reach.
	Limit time.Duration
	// Inherit is an open file that the plugins, and what they start, have open too. A lock
	// on it (flock) is thus held until all of them have ended, though their caller may have
	// been killed; nil = none.
	Inherit *os.File
	// Stderr gets the plugins' standard error as they write it; nil = nobody does.
	// Its errors are ignored: a plugin does not die of our log.
	Stderr io.Writer
}

// ExecPlugin runs the plugin at path and gives what it printed. The environment is
// complete, but for PATH where that is missing, empty or "/". The error is an *[Error].
//
// The context ends the wait for an executable that is being replaced, and never the plugin:
// nobody knows what one that was killed has left behind.
func (e *Exec) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	env = withPath(env)
	for tries := 1; ; tries++ {
		stdout, err := e.run(path, stdin, env)
		if !errors.Is(err, syscall.ETXTBSY) || tries == replaceTries {
			return stdout, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(replacePause):
		}
	}
}

func (e *Exec) run(path string, stdin []byte, env []string) ([]byte, error) {
	stdout, stderr := &output{}, &messages{to: e.Stderr}
	ctx, late := context.Background(), false
	if e.Limit > 0 {
		limited, cancel := context.WithTimeout(ctx, e.Limit)
		defer cancel()
		ctx = limited
	}
	c := exec.CommandContext(ctx, path)
	c.Env, c.Stdin, c.Stdout, c.Stderr = env, bytes.NewReader(stdin), stdout, stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: e.Limit > 0}
	if e.Root != "" {
		c.Dir, c.SysProcAttr.Chroot = "/", e.Root
	}
	if e.Inherit != nil {
		c.ExtraFiles = []*os.File{e.Inherit}
	}
	c.Cancel = func() error {
		err := syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
		late = err == nil
		return err
	}
	c.WaitDelay = lastWords // after Cancel, then SIGKILL
	switch err := c.Start(); {
	case errors.Is(err, os.ErrNotExist):
		return nil, failed(ReasonMissing, "%w: install it, or the interpreter that it names", err)
	case err != nil:
		return nil, &Error{ReasonNode, err}
	}
	_ = c.Wait()                                           // its state says it
	if e.Limit > 0 && (late || !c.ProcessState.Exited()) { // else what it has started goes on
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	if late {
		return nil, failed(ReasonTimeout, "%s: killed after its limit of %v: find out why it hangs", path, e.Limit)
	}
	return answer(path, slices.Contains(env, "CNI_COMMAND=ADD"), c.ProcessState, stdout, stderr)
}

// answer is what a plugin that has ended says, which has to be a result after ADD.
func answer(path string, add bool, state *os.ProcessState, stdout *output, stderr *messages) ([]byte, error) {
	own := new(types.Error)
	switch {
	case stdout.over:
		return nil, failed(ReasonOutput, "%s: printed more than %d bytes: report this to the plugin's authors", path, MaxOutput)
	case state.Success() && add && !isResult(stdout.text):
		return nil, failed(ReasonOutput, "%s: printed no CNI result: %q", path, abridged(stdout.text))
	case state.Success():
		return stdout.text, nil
	case json.Unmarshal(stdout.text, own) == nil && (own.Msg != "" || own.Code != 0):
		return nil, &Error{ReasonPlugin, own}
	}
	return nil, failed(ReasonDied, "%s: %v, without a CNI error; standard output %q, standard error %q",
		path, state, abridged(stdout.text), abridged(stderr.beginning))
}

// withPath sees to PATH, which is "/" in an image without a shell.
func withPath(env []string) []string {
	path := ""
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			path = value
		}
	}
	if path != "" && path != "/" {
		return env
	}
	return append(slices.Clip(env), "PATH="+usualPath) // the last one counts
}

// isResult is false for what would make the CNI library panic, too: it converts results
// without a look at what is null in their lists. Nor is it one that nests too deep to be kept.
func isResult(text []byte) bool {
	var object map[string]json.RawMessage
	if _, levels := shape.Of(text); json.Unmarshal(text, &object) != nil || levels > shape.MostLevels {
		return false
	}
	var has struct {
		Interfaces, IPs, Routes []json.RawMessage
		IP4, IP6                struct{ Routes []json.RawMessage } // before 0.3.0
	}
	_ = json.Unmarshal(text, &has) // libcni refuses other types
	entries := slices.Concat(has.Interfaces, has.IPs, has.Routes, has.IP4.Routes, has.IP6.Routes)
	return !slices.ContainsFunc(entries, func(e json.RawMessage) bool { return string(e) == "null" })
}

// output is a plugin's standard output.
type output struct {
	text []byte
	over bool
}

// Write fails once there is too much, by which the plugin's end of the pipe breaks: it
// need not be read to its end.
func (o *output) Write(p []byte) (int, error) {
	if len(o.text)+len(p) > MaxOutput {
		o.over = true
		return 0, errors.New("too much output")
	}
	o.text = append(o.text, p...)
	return len(p), nil
}

const enough = 1024 // bytes of an output in a message

// messages is a plugin's standard error: its beginning is kept, for there a panic says
// what it is.
type messages struct {
	beginning []byte
	to        io.Writer // nil = nobody
}

// Write never fails.
func (m *messages) Write(p []byte) (int, error) {
	m.beginning = append(m.beginning, p[:min(len(p), enough+1-len(m.beginning))]...)
	if m.to != nil {
		_, _ = m.to.Write(p)
	}
	return len(p), nil
}
