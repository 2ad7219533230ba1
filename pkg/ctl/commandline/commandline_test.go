package commandline_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/ctl/clierr"
	"devinfo-cni.io/pkg/ctl/commandline"
)

func TestUnknownFlagGetsSuggestion(t *testing.T) {
	for line, want := range map[string][2]string{
		"":               {"", ""},
		"topology":       {"", ""},
		"help topology":  {"", ""},
		"topologi":       {`unknown command "topologi"`, "did you mean topology? See tool --help"},
		"nothing of all": {`unknown command "nothing"`, "see tool --help"},
		"topology --x":   {"unknown flag: --x", "see tool topology --help"},
	} {
		var out bytes.Buffer
		root := &cobra.Command{Use: "tool", RunE: func(*cobra.Command, []string) error { return nil }}
		root.AddCommand(&cobra.Command{Use: "topology", Run: func(*cobra.Command, []string) {}})
		commandline.Finish(root)
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(strings.Fields(line))
		err := root.Execute()
		var got [2]string
		if refused := new(clierr.Error); errors.As(err, &refused) {
			got = [2]string{err.Error(), refused.Remedy}
		} else if err != nil {
			t.Errorf("%q: not refused by us: %v", line, err)
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

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
		"agent: --run-dir: mkdir /x: read-only file system\n":                                                                                                          {mkdir(syscall.EROFS), 1000, 1},
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

func TestVersionIsAFlag(t *testing.T) {
	for line, want := range map[string]string{"": "ran\n", "--version": "tool version " + build.Read().String() + "\n"} {
		var out bytes.Buffer
		root := &cobra.Command{Use: "tool", RunE: func(*cobra.Command, []string) error {
			_, err := out.WriteString("ran\n")
			return err
		}}
		commandline.Finish(root)
		root.SetOut(&out)
		root.SetArgs(strings.Fields(line))
		if err := root.Execute(); err != nil || out.String() != want || root.Flags().ShorthandLookup("v") != nil {
			t.Errorf("%q: %q, %v; want %q", line, out.String(), err, want)
		}
	}
}
