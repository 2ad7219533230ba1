package crash_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/difftest"
)

// hangs is the time limit of a call.
const hangs = 2 * time.Minute

// A seat runs one program at a time.
type seat struct {
	inj *inject.Injector
	// The program's standard output and error; they are files, because an orphaned child would keep a pipe open.
	out [2]*os.File
}

func newSeat(t *testing.T, which inject.Calls) *seat {
	t.Helper()
	var s seat
	var err error
	if s.inj, err = inject.New(which); err != nil {
		if os.Getenv("DEVINFO_NETNS") == "must" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for n := range s.out {
		s.out[n], err = os.CreateTemp(t.TempDir(), "")
		difftest.Must(t, err)
	}
	return &s
}

// A program is an executable with its arguments, environment and standard input.
type program struct {
	path      string
	args, env []string
	stdin     string
}

// An outcome is the result of one call of the plugin.
type outcome struct {
	exit           int // -1 = killed
	stdout, stderr string
}

// run runs a program. decide may be nil. The error is not an error of the program.
func (s *seat) run(p program, decide func(inject.Call) inject.Verdict) (outcome, error) {
	if decide == nil {
		decide = func(inject.Call) inject.Verdict { return inject.Verdict{} }
	}
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Env, cmd.Stdin = p.env, strings.NewReader(p.stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = s.out[0], s.out[1]
	for _, f := range s.out {
		_, err := f.Seek(0, io.SeekStart)
		if err = errors.Join(err, f.Truncate(0)); err != nil {
			return outcome{}, err
		}
	}
	err := s.inj.Run(cmd, decide)
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		return outcome{}, errors.Join(err, ctx.Err())
	}
	stdout, err := os.ReadFile(s.out[0].Name())
	stderr, e := os.ReadFile(s.out[1].Name())
	return outcome{cmd.ProcessState.ExitCode(), string(stdout), string(stderr)}, errors.Join(err, e)
}

// failure returns why the call failed; "" if it succeeded.
func (o outcome) failure() string {
	switch e := o.printed(); {
	case o.exit == 0:
		return ""
	case e.Code == 0:
		return "exit code " + strings.TrimSpace(o.stdout+o.stderr)
	default:
		return strings.TrimSpace(e.Msg + "; " + e.Details)
	}
}

// printed returns the CNI error; its code is 0 if the program printed none.
func (o outcome) printed() (e types.Error) {
	if json.Unmarshal([]byte(o.stdout), &e) != nil {
		e.Code = 0
	}
	return e
}
