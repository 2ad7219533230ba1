package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/test/difftest"
)

func TestHelpNamesExamplesAndExitCodes(t *testing.T) {
	golden(t, "help", "--help")
	for _, command := range newRoot(&tool{}).Commands() {
		if command.Example == "" || command.Long == "" || command.Short == "" {
			t.Errorf("%s: the help lacks an example or a text", command.Name())
		}
	}
}

// Help is about no node.
func TestOnlyCommandsEnterHostRoot(t *testing.T) {
	for command, reads := range map[string]bool{"doctor": true, "validate x": true, "": false, "help": false, "help doctor": false, "doctor --help": false, "completion bash": false} {
		o := ctl(append([]string{"--host-root", "/nowhere"}, strings.Fields(command)...)...)
		if exit := map[bool]int{true: clierr.Blind}[reads]; o.exit != exit || strings.Contains(o.stderr, "--host-root: /nowhere: ") != reads {
			t.Errorf("%s: %+v", command, o)
		}
	}
}

func TestUnpackedCaptureIsRemoved(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	for _, args := range [][]string{{"topology"}, {"inspect", "nothing"}, {"capture", "-o", "-"}} {
		ctl(append([]string{"--capture", "testdata/node.txtar"}, args...)...)
		difftest.Holds(t, temp)
	}
	t.Setenv("TMPDIR", filepath.Join(temp, "none"))
	if o := ctl("--capture", nodeHost, "list"); o.exit != clierr.Blind || o.stdout != "" || !strings.Contains(o.stderr, "unpack "+nodeHost+": ") {
		t.Errorf("%+v", o)
	}
}

// Users without root see the parts that they can read.
func TestUnreadableSettingsAreReplacedByDefaults(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	file := filepath.Join(t.TempDir(), "node.json")
	difftest.Must(t, os.WriteFile(file, []byte("{}"), 0))
	t.Setenv("DEVINFO_NODE_CONFIG", file)
	if o := ctl("topology"); o.exit != 0 || !strings.Contains(o.stderr, "permission denied; the defaults are used\n") {
		t.Errorf("%+v", o)
	}
	if o := ctl("--node-config", file, "topology"); o.exit != clierr.Blind {
		t.Errorf("--node-config: %+v", o)
	}
}

// endless is an input without an end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return copy(p, bytes.Repeat([]byte("["), len(p))), nil
}

func TestValidateStopsReadingStandardInputAtLimit(t *testing.T) {
	input := &endless{}
	for name, test := range map[string]struct {
		stdin io.Reader
		exit  int
		want  string
	}{
		"good":    {strings.NewReader(`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.3"}}`), 0, "-: device-info: valid\n"},
		"endless": {input, clierr.Found, "-: unreadable: 1 error, 0 warnings\n  error: the text has more than 4 MiB\n"},
		"deep":    {strings.NewReader(strings.Repeat("[", 1<<20)), clierr.Found, "-: unreadable: 1 error, 0 warnings\n  error: the text is not JSON: line 1, byte 10001: invalid character '[' exceeded max depth\n"},
	} {
		var stdout, stderr bytes.Buffer
		exit := run([]string{"validate", "-"}, test.stdin, &stdout, &stderr)
		if exit != test.exit || stdout.String() != test.want || stderr.Len() > 0 {
			t.Errorf("%s: exit %d\n%s%s", name, exit, &stdout, &stderr)
		}
	}
	if input.read > 8<<20 {
		t.Errorf("it has read %d bytes", input.read)
	}
}

// One Ctrl-C must end validate when it reads from a terminal.
func TestSignalEndsValidateThatWaitsForInput(t *testing.T) {
	cmd := newNode(t).command("validate", "-")
	r, w, err := os.Pipe()
	difftest.Must(t, err)
	defer w.Close()
	cmd.Stdin = r
	difftest.Must(t, cmd.Start())
	_, err = w.Write([]byte(" "))
	difftest.Must(t, err)
	for left := 1; left > 0; time.Sleep(time.Millisecond) { // until validate reads
		left, err = unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
		difftest.Must(t, err)
	}
	kill := time.AfterFunc(3*time.Minute, func() { _ = cmd.Process.Kill() })
	difftest.Must(t, cmd.Process.Signal(syscall.SIGTERM)) // SIGINT may be ignored from the start, as in a shell's background
	if _ = cmd.Wait(); !kill.Stop() {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
}
