package commandline_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/ctl/commandline"
)

// EPERM and EACCES can have several causes for root: a user namespace, missing capabilities, or a security module.
// The hint cannot tell them apart.
func TestPermissionErrorHasHint(t *testing.T) {
	mkdir := func(errno error) error {
		return fmt.Errorf("--run-dir: %w", &fs.PathError{Op: "mkdir", Path: "/x", Err: errno})
	}
	const daemonSet = "in its DaemonSet with the securityContext that deploy/ has\n"
	for want, test := range map[string]struct {
		err  error
		uid  int
		code int
	}{
		"agent: --run-dir: mkdir /x: permission denied\n  run as root, or " + daemonSet:                                                                                {mkdir(syscall.EACCES), 1000, 1},
		"agent: --run-dir: mkdir /x: operation not permitted\n  a user namespace, a missing capability, SELinux or AppArmor may deny that to user 0: run " + daemonSet: {mkdir(syscall.EPERM), 0, 1},
		"agent: permission denied\n  load the module\n":                                                                                                                {clierr.For(fs.ErrPermission, "load the module"), 1000, 1},
		"agent: --x\n  see agent --help\n":                                                                                                                             {clierr.Misuse("see agent --help", "--x"), 1000, clierr.Usage},
		"":                                                                                                                                                             {nil, 1000, 0},
	} {
		var out bytes.Buffer
		root := &cobra.Command{Use: "agent", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return test.err }}
		root.SetArgs([]string{})
		if code := commandline.RunAgent(root, &out, test.uid); code != test.code || out.String() != want {
			t.Errorf("exit code %d: %s; want %d: %s", code, &out, test.code, want)
		}
	}
}
