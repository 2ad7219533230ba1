package commandline_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/ctl/commandline"
)

func TestWhatIsNotKnownIsRefusedWithWhatWasMeant(t *testing.T) {
	for line, want := range map[string][2]string{
		"":                {"", ""},
		"topology":        {"", ""},
		"help topology":   {"", ""},
		"completion bash": {"", ""},
		"topologi":        {`unknown command "topologi"`, "did you mean topology? See tool --help"},
		"nothing of all":  {`unknown command "nothing"`, "see tool --help"},
		"help topologi":   {`help: unknown command "topologi"`, "did you mean topology? See tool --help"},
		"help topology x": {`help: unknown command "topology x"`, "did you mean topology? See tool --help"},
		"completion":      {"completion: SHELL is missing", "give one of bash, fish, powershell, zsh"},
		"completion tcsh": {`completion: unknown shell "tcsh"`, "give one of bash, fish, powershell, zsh"},
	} {
		var out bytes.Buffer
		root := &cobra.Command{Use: "tool", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return nil }}
		root.AddCommand(&cobra.Command{Use: "topology", Run: func(*cobra.Command, []string) {}})
		commandline.Strict(root)
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(strings.Fields(line))
		err := root.Execute()
		var got [2]string
		if refused := new(commandline.Error); errors.As(err, &refused) {
			got = [2]string{err.Error(), refused.Remedy}
		} else if err != nil {
			t.Errorf("%q: not refused by us: %v", line, err)
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
