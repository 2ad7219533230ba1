// Package node has what tests share that run programs on a node of their own, as a runtime does: the node, programs that
// meet faults, and snapshots of what they leave. The node is in the namespaces of package linktest.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

// Paths of a node. /run and /var/lib belong to the test.
const (
	Settings = "/run/node.json" // the settings
	Sys      = "/run/sys"       // that of the captured host igb-sriov
	Bin      = "/run/bin"       // programs of the test
)

// Make makes a node with these settings and directories. Its programs are the test binary under other names.
func Make(t testing.TB, settings map[string]any, programs []string, dirs ...string) {
	t.Helper()
	self, err := os.Executable()
	difftest.Must(t, err, unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, "mode=0755"))
	for _, dir := range append(dirs, Bin) {
		difftest.Must(t, os.MkdirAll(dir, 0o755))
	}
	for _, name := range programs {
		difftest.Must(t, os.Symlink(self, filepath.Join(Bin, name)))
	}
	undertest.Sys(t, "igb-sriov", Sys)
	settings["sysfs"] = Sys
	text, err := json.Marshal(settings)
	difftest.Must(t, err, os.WriteFile(Settings, text, 0o644))
}

// Journal opens the node's journal.
func Journal(stateDir string) (*journal.Journal, error) {
	boot, err := journal.BootID()
	return journal.Open(stateDir, boot), err
}

// hangs is the time limit of a program.
const hangs = 10 * time.Minute

// A Seat runs one program at a time.
type Seat struct {
	inj *inject.Injector
	// The program's standard output and error; they are files, because an orphaned child would keep a pipe open.
	out [2]*os.File
}

// NewSeat returns a seat where these calls of a program can fail.
func NewSeat(t testing.TB, which inject.Calls) *Seat {
	t.Helper()
	s := &Seat{inj: inject.New(t, which)}
	for n := range s.out {
		file, err := os.CreateTemp(t.TempDir(), "")
		difftest.Must(t, err)
		s.out[n] = file
	}
	return s
}

// An Outcome is the result of one run of a program.
type Outcome struct {
	Exit           int // -1 = killed
	Stdout, Stderr string
}

// Run runs a program, which is described by its path, arguments, environment and standard input. decide may be nil. The error
// is not an error of the program, except that it hangs.
func (s *Seat) Run(program *exec.Cmd, decide func(inject.Call) inject.Verdict) (o Outcome, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	cmd := exec.CommandContext(ctx, program.Path, program.Args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = program.Env, program.Stdin, s.out[0], s.out[1]
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // Go's runtime then prints what it waits for
	cmd.WaitDelay = time.Minute
	for _, f := range s.out {
		_, err := f.Seek(0, io.SeekStart)
		if err = errors.Join(err, f.Truncate(0)); err != nil {
			return o, err
		}
	}
	if err := s.inj.Run(cmd, decide); err != nil {
		return o, err
	}
	stdout, err := os.ReadFile(s.out[0].Name())
	stderr, e := os.ReadFile(s.out[1].Name())
	if ctx.Err() != nil {
		return o, fmt.Errorf("it hangs: %s", stderr)
	}
	return Outcome{cmd.ProcessState.ExitCode(), string(stdout), string(stderr)}, errors.Join(err, e)
}

// Failure returns why the call of a plugin failed; "" if it succeeded.
func (o Outcome) Failure() string {
	switch e := o.Printed(); {
	case o.Exit == 0:
		return ""
	case e.Code == 0:
		return "exit code " + strings.TrimSpace(o.Stdout+o.Stderr)
	default:
		return strings.TrimSpace(e.Msg + "; " + e.Details)
	}
}

// Printed returns the CNI error; its code is 0 if the program printed none.
func (o Outcome) Printed() (e types.Error) {
	if json.Unmarshal([]byte(o.Stdout), &e) != nil {
		e.Code = 0
	}
	return e
}
