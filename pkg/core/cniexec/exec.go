// Package cniexec runs CNI plugins: devinfo's delegates, and the networks of claims. [Exec] implements libcni's
// invoke.Exec by the execution protocol of the CNI specification (section 2, "Execution Protocol"). A [Network]
// runs several plugins through libcni.
//
// Compared with libcni's own implementation, Exec limits the output and the running time of a plugin, does not
// wait for a daemon that inherited the plugin's output, and returns an [Error] with the kind of failure. Each
// plugin also inherits a locked file. If the caller is killed, its plugins keep the lock, and the next call for
// the attachment can wait until they end, see [Exec.Inherit].
package cniexec

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/config"
)

// MaxOutput is the largest number of bytes that a plugin may print on standard output.
const MaxOutput = 10_000_000

const (
	lastWords    = 10 * time.Second // between SIGTERM and SIGKILL, and from a plugin's end to the end of its output
	replacePause = 100 * time.Millisecond
	replaceTries = 50 // 5 s in total; the kernel does not start an executable that is open for writing
)

// usualPath is the PATH for plugins that start programs such as iptables.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Exec runs plugins. It implements invoke.Exec, and its methods may be called concurrently.
type Exec struct {
	version.PluginDecoder // for the method Decode

	// Root is the root directory of the plugins and their paths, such as the host's root mounted in a container. It
	// needs CAP_SYS_CHROOT; "" = this process's root.
	Root string
	// Limit is the time that one plugin may run; 0 = no limit. At the limit the plugin and its children get
	// SIGTERM, and SIGKILL 10 s later. With a limit the plugin runs in a process group of its own, so signals
	// from a terminal do not reach it.
	Limit time.Duration
	// Inherit is an open file that plugins and their children inherit; nil = none. A lock on it (flock) is held
	// until all of them have ended, even if the caller is killed.
	Inherit *os.File
	// Env is added to the environment of the plugins.
	Env []string
	// Stderr receives the plugins' standard error; nil = discard. If it fails, the plugins do not notice.
	Stderr io.Writer
}

// ExecPlugin runs the plugin at path and returns its standard output. env is the complete environment, except
// that ExecPlugin sets PATH if it is missing, empty or "/". The error is an *[Error].
//
// Ending ctx ends the wait for an executable that is being replaced. It does not end a running plugin, because
// a killed plugin may leave work half done.
func (e *Exec) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	env = append(withPath(env), e.Env...)
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
	c.WaitDelay = lastWords // time from Cancel to SIGKILL
	switch err := c.Start(); {
	case errors.Is(err, os.ErrNotExist):
		return nil, failed(ReasonMissing, "%w: install it, or the interpreter that it names", err)
	case err != nil:
		return nil, &Error{ReasonNode, err}
	}
	_ = c.Wait()                                           // ProcessState has the outcome
	if e.Limit > 0 && (late || !c.ProcessState.Exited()) { // a child may still be running
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	if late {
		return nil, failed(ReasonTimeout, "%s: killed after its limit of %v: find out why it hangs", path, e.Limit)
	}
	return answer(path, slices.Contains(env, "CNI_COMMAND=ADD"), c.ProcessState, stdout, stderr)
}

func answer(path string, add bool, state *os.ProcessState, stdout *output, stderr *messages) ([]byte, error) {
	own := new(types.Error)
	isError := json.Unmarshal(stdout.text, own) == nil && (own.Code != 0 || own.Msg != "" && !state.Success())
	switch {
	case stdout.over:
		return nil, failed(ReasonOutput, "%s: printed more than %d bytes", path, MaxOutput)
	case isError: // whatever the exit status
		return nil, &Error{ReasonPlugin, own}
	case state.Success() && nearlyError(stdout.text):
		return nil, failed(ReasonOutput, "%s: printed an error that is no CNI error: %q", path, abridged(stdout.text))
	case state.Success() && add && !isResult(stdout.text):
		return nil, failed(ReasonOutput, "%s: printed no CNI result: %q", path, abridged(stdout.text))
	case state.Success():
		return stdout.text, nil
	}
	return nil, failed(ReasonDied, "%s: %v, without a CNI error; standard output %q, standard error %q",
		path, state, abridged(stdout.text), abridged(stderr.beginning))
}

// nearlyError reports whether text is an object like {"code": "7"}, {"msg": "no"} or {"error": "no"}, which a plugin that
// writes its own JSON may print when it fails. A code of 0, and a result with such a key, are no error.
func nearlyError(text []byte) bool {
	var has struct {
		Code, Msg, Error                  any
		Interfaces, IPs, IP4, IP6, Routes json.RawMessage
	}
	if json.Unmarshal(text, &has) != nil || has.Interfaces != nil || has.IPs != nil || has.IP4 != nil || has.IP6 != nil || has.Routes != nil {
		return false
	}
	if has.Code != nil {
		return has.Code != 0.0
	}
	return has.Msg != nil || has.Error != nil
}

// withPath sets PATH unless it has a usable value. It is "/" in a container image without a shell.
func withPath(env []string) []string {
	path := ""
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			path = value
		}
	}
	if path != "" && path != "/" {
		return slices.Clip(env)
	}
	return append(slices.Clip(env), "PATH="+usualPath) // the last of two values wins
}

// isResult reports whether text can be used as a CNI result. It rejects a null in a list, which makes the CNI
// library panic, and more levels than the journal can store.
func isResult(text []byte) bool {
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil || object == nil || config.Levels(text) > config.MostLevels {
		return false
	}
	var has struct {
		Interfaces, IPs, Routes []json.RawMessage
		IP4, IP6                struct{ Routes []json.RawMessage } // before 0.3.0
	}
	_ = json.Unmarshal(text, &has) // libcni reports wrong types
	entries := slices.Concat(has.Interfaces, has.IPs, has.Routes, has.IP4.Routes, has.IP6.Routes)
	return !slices.ContainsFunc(entries, func(e json.RawMessage) bool { return string(e) == "null" })
}

type output struct {
	text []byte
	over bool
}

// Write fails once the output exceeds the limit. The plugin's writes then fail too.
func (o *output) Write(p []byte) (int, error) {
	if len(o.text)+len(p) > MaxOutput {
		o.over = true
		return 0, errors.New("too much output")
	}
	o.text = append(o.text, p...)
	return len(p), nil
}

const enough = 1024 // bytes of output quoted in a message

// messages passes on a plugin's standard error and keeps its beginning, which contains the reason of a panic.
type messages struct {
	beginning []byte
	to        io.Writer // nil = discard
}

// Write always succeeds.
func (m *messages) Write(p []byte) (int, error) {
	m.beginning = append(m.beginning, p[:min(len(p), enough+1-len(m.beginning))]...)
	if m.to != nil {
		_, _ = m.to.Write(p)
	}
	return len(p), nil
}

// Reason is the kind of failure of an [Error].
type Reason string

// With ReasonMissing and ReasonNode the plugin has not run.
const (
	ReasonPlugin  Reason = "plugin"  // the plugin printed a CNI error, a *types.Error, which Error wraps
	ReasonDied    Reason = "died"    // the plugin exited without a CNI error
	ReasonTimeout Reason = "timeout" // the plugin was killed at its time limit
	ReasonOutput  Reason = "output"  // the plugin printed no CNI result, or more than MaxOutput
	ReasonMissing Reason = "missing" // the plugin is not installed
	ReasonNode    Reason = "node"    // the node could not start the plugin
)

// Error is the reason why a plugin was not run, or failed. Paths in it are relative to [Exec.Root].
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func failed(reason Reason, format string, args ...any) *Error {
	return &Error{reason, fmt.Errorf(format, args...)}
}

func abridged(text []byte) []byte {
	if text = bytes.TrimSpace(text); len(text) > enough {
		return append(text[:enough:enough], "..."...)
	}
	return text
}

// FindInPath returns the path, relative to Root, of the first executable file named plugin in dirs.
// The error is an *[Error] with [ReasonMissing].
func (e *Exec) FindInPath(plugin string, dirs []string) (string, error) {
	if plugin == "" || strings.ContainsRune(plugin, '/') {
		return "", failed(ReasonMissing, "CNI plugin %q: type must be the name of an executable", plugin)
	}
	unfit := ""
	for _, dir := range dirs {
		path := filepath.Join(dir, plugin)
		switch stat, err := e.stat(path); {
		case err != nil || !stat.Mode().IsRegular():
		case stat.Mode()&0o111 != 0:
			return path, nil
		default:
			unfit = cmp.Or(unfit, path)
		}
	}
	if unfit != "" {
		return "", failed(ReasonMissing, "CNI plugin %q: %s is not executable: chmod 0755 it", plugin, unfit)
	}
	return "", failed(ReasonMissing, "CNI plugin %q: not installed in %s", plugin, strings.Join(dirs, " or "))
}

// stat resolves symbolic links relative to Root, because the host's plugin directory may be one.
func (e *Exec) stat(path string) (fs.FileInfo, error) {
	if e.Root == "" {
		return os.Stat(path)
	}
	root, err := unix.Open(e.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	file, err := unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // openat2 needs Linux 5.6, and older seccomp profiles forbid it
		return os.Stat(filepath.Join(e.Root, path))
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(file), path)
	defer f.Close()
	return f.Stat()
}
