package commandline_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/remedy"
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
		if refused := new(remedy.Error); errors.As(err, &refused) {
			got = [2]string{err.Error(), refused.Remedy}
		} else if err != nil {
			t.Errorf("%q: not refused by us: %v", line, err)
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

func TestTheVersionIsAFlagWhoseShorthandGivesWay(t *testing.T) {
	for line, want := range map[string]string{"": "ran\n", "--version": "tool v1\n", "-v": "tool v1\n", "of-logs -v=2": "ran\n", "of-logs --version": "tool v1\n"} {
		var out bytes.Buffer
		root := &cobra.Command{Use: "tool", RunE: func(*cobra.Command, []string) error {
			_, err := out.WriteString("ran\n")
			return err
		}}
		line, logs := strings.CutPrefix(line, "of-logs ")
		if logs {
			root.Flags().IntP("verbosity", "v", 0, "of logs")
		}
		commandline.Version(root, "tool v1")
		root.SetOut(&out)
		root.SetArgs(strings.Fields(line))
		if err := root.Execute(); err != nil || out.String() != want {
			t.Errorf("%q, with logs %v: %q, %v; want %q", line, logs, out.String(), err, want)
		}
	}
}
