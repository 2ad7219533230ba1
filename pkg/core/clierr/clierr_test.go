package clierr_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/test/difftest"
)

func TestReportPrintsErrorWithRemedyAndReturnsExitCode(t *testing.T) {
	plain := errors.New("no\u009b x")
	for _, test := range []struct {
		err        error
		understood bool
		code       int
		want       string
	}{
		{nil, true, 0, ""},
		{plain, true, 3, "tool: no\\u009b x\n"},
		{plain, false, 2, "tool: no\\u009b x\n  see tool --help\n"},
		{clierr.For(plain, "add\x1b x"), false, 3, "tool: no\\u009b x\n  add\\u001b x\n"},
		{fmt.Errorf("pod: %w", clierr.For(plain, "add x")), true, 3, "tool: pod: no\\u009b x\n  add x\n"},
		{clierr.Misuse("give one", "%d names", 2), true, 2, "tool: 2 names\n  give one\n"},
		{clierr.ErrFound, true, 1, ""},
		{fmt.Errorf("list: %w", clierr.ErrBlind), true, 3, ""},
	} {
		var out strings.Builder
		code := clierr.Report(&out, "tool", test.understood, test.err)
		difftest.Same(t, fmt.Sprintf("%v, %t", test.err, test.understood), fmt.Sprint(code, " ", &out), fmt.Sprint(test.code, " ", test.want))
	}
}

// EPERM and EACCES can have several causes for root, and the remedy cannot tell them apart.
func TestRightsAreOnlyForPermissionErrors(t *testing.T) {
	difftest.Equal(t, clierr.Rights(syscall.ENOENT, 0), "")
	difftest.Contains(t, clierr.Rights(syscall.EACCES, 1000), "run as root, or in its DaemonSet ")
	denied := fmt.Errorf("--run-dir: %w", &fs.PathError{Op: "mkdir", Path: "/x", Err: syscall.EPERM})
	difftest.Contains(t, clierr.Rights(denied, 0), "SELinux or AppArmor may deny that to user 0: run in its DaemonSet ")
}

func TestTextIsSafeAndShort(t *testing.T) {
	difftest.Equal(t, clierr.Printable("ä\n\t\U000e0001\xff"), `ä\u000a\u0009\udb40\udc01`+"\ufffd")
	var out strings.Builder
	n, err := fmt.Fprint(clierr.Terminal(&out), "a\n\tb\x07")
	difftest.Equal(t, fmt.Sprint(n, err, out.String()), "5 <nil>a\n\tb\\u0007")
	r, w := io.Pipe()
	difftest.Must(t, r.Close())
	_, err = fmt.Fprint(clierr.Terminal(w), "a")
	difftest.Is(t, err, io.ErrClosedPipe)
	difftest.Equal(t, []string{clierr.Few([]string{"a", "b"}, 2), clierr.Few([]string{"a", "b", "c"}, 2)}, []string{"a, b", "a, b and 1 more"})
}
