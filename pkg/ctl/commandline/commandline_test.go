package commandline_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"testing"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/ctl/commandline"
)

func TestPermissionErrorHasHint(t *testing.T) {
	for want, test := range map[string]struct {
		err  error
		code int
	}{
		"agent: --run-dir: permission denied\n  " + clierr.Rights(fs.ErrPermission, 1000) + "\n": {fmt.Errorf("--run-dir: %w", fs.ErrPermission), 1},
		"agent: permission denied\n  load the module\n":                                          {clierr.For(fs.ErrPermission, "load the module"), 1},
		"agent: --x\n  see agent --help\n":                                                       {clierr.Misuse("see agent --help", "--x"), clierr.Usage},
		"":                                                                                       {nil, 0},
	} {
		var out bytes.Buffer
		root := &cobra.Command{Use: "agent", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return test.err }}
		root.SetArgs([]string{})
		if code := commandline.RunAgent(root, &out, 1000); code != test.code || out.String() != want {
			t.Errorf("exit code %d: %s; want %d: %s", code, &out, test.code, want)
		}
	}
}
