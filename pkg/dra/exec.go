package dra

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// execution runs the plugins of one attachment. Unlike libcni's own it ends a plugin
// that hangs, with SIGTERM first; it does not wait for whoever has inherited a plugin's
// output; and the plugins hold a lock, by which the next agent knows that they still run
// when this one was killed.
type execution struct {
	version.PluginDecoder
	verb  string // "ADD" or "DEL"
	root  string
	limit time.Duration
	lock  *os.File
	log   *slog.Logger
}

const (
	maxOutput   = 1 << 20          // bytes of a plugin's standard output
	lastWords   = 10 * time.Second // for a plugin between SIGTERM and SIGKILL, and for its output after its end
	busyRetry   = 100 * time.Millisecond
	busyRetries = 20
)

// ExecPlugin implements invoke.Exec.
func (e *execution) ExecPlugin(_ context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), e.limit)
	defer cancel()
	stdout, stderr := &capped{limit: maxOutput}, &capped{limit: maxOutput}
	var err error
	for range busyRetries {
		err = e.command(ctx, path, stdin, env, stdout, stderr).Run()
		if !errors.Is(err, syscall.ETXTBSY) { // the plugin is being replaced
			break
		}
		time.Sleep(busyRetry)
	}
	if len(stderr.data) > 0 {
		e.log.Info("CNI plugin", "plugin", filepath.Base(path), "stderr", string(stderr.data))
	}
	switch {
	case ctx.Err() != nil:
		return nil, &execError{ReasonTimeout, fmt.Errorf("%s: ended after %v: find out what it waits for", path, e.limit)}
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, pluginError(err, stdout.data, stderr.data)
	case e.verb == "ADD" && !stdout.over && !json.Valid(stdout.data):
		return nil, &execError{ReasonOutput, fmt.Errorf("%s: printed no CNI result: %q", path, abridged(stdout.data))}
	case stdout.over:
		return nil, &execError{ReasonOutput, fmt.Errorf("%s: printed more than %d bytes", path, maxOutput)}
	}
	return stdout.data, nil
}

func (e *execution) command(ctx context.Context, path string, stdin []byte, env []string, stdout, stderr *capped) *exec.Cmd {
	c := exec.CommandContext(ctx, path)
	c.Env, c.Stdin, c.Stdout, c.Stderr = env, bytes.NewReader(stdin), stdout, stderr
	c.ExtraFiles = []*os.File{e.lock}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = lastWords
	if e.root != "" {
		c.Dir, c.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: e.root}
	}
	return c
}

// FindInPath implements invoke.Exec. The path that it gives is one below root.
func (e *execution) FindInPath(plugin string, dirs []string) (string, error) {
	inRoot := make([]string, len(dirs))
	for n, dir := range dirs {
		inRoot[n] = filepath.Join(e.root, dir)
	}
	path, err := invoke.FindInPath(plugin, inRoot)
	if err != nil {
		return "", &execError{ReasonMissing, fmt.Errorf("%w: install it in one of the CNI plugin directories", err)}
	}
	if e.root == "" {
		return path, nil
	}
	below, err := filepath.Rel(e.root, path)
	return "/" + below, err
}

// pluginError is the CNI error that the plugin printed, or what is known instead.
func pluginError(err error, stdout, stderr []byte) error {
	own := new(types.Error)
	if json.Unmarshal(stdout, own) == nil && (own.Msg != "" || own.Code != 0) {
		return &execError{ReasonPlugin, own}
	}
	return &execError{ReasonDied, fmt.Errorf("%w, without a CNI error; standard output %q, standard error %q",
		err, abridged(stdout), abridged(stderr))}
}

// abridged is enough of an output for a message.
func abridged(output []byte) []byte {
	const enough = 1024
	if output = bytes.TrimSpace(output); len(output) > enough {
		return append(output[:enough:enough], "..."...)
	}
	return output
}

// capped keeps the beginning of what is written to it.
type capped struct {
	data  []byte
	limit int
	over  bool
}

func (c *capped) Write(p []byte) (int, error) {
	room := c.limit - len(c.data)
	if len(p) > room {
		c.over = true
		c.data = append(c.data, p[:room]...)
		return len(p), nil
	}
	c.data = append(c.data, p...)
	return len(p), nil
}

// lockNew makes and locks a file, which stays locked as long as any process lives that
// has inherited it.
func lockNew(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// waitFor waits until nobody holds the lock of a file, which need not be there.
func waitFor(path string, limit time.Duration) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	const pause = 50 * time.Millisecond
	for end := time.Now().Add(limit); ; time.Sleep(pause) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || time.Now().After(end) {
			return fmt.Errorf("%s: still locked after %v: %w", path, limit, err)
		}
	}
}
