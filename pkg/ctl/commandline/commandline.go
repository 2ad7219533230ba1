// Package commandline makes programs of cobra's commands refuse what they do not know.
// Cobra's own help and completion show some help instead, as if nothing were wrong.
package commandline

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Error is one of the command line.
type Error struct {
	Err    error
	Remedy string
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Strict makes a root command without arguments of its own, "help" and "completion" fail for
// commands and shells that do not exist, with an [*Error] that names the one that was meant,
// if one is near. The root's commands must be there already.
func Strict(root *cobra.Command) {
	root.SuggestionsMinimumDistance = 2
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknown(root, "", args[:1])
	}
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "the help of a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknown(root, "help: ", args)
			}
			return cmd.Help()
		},
	})
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			strictShells(root, c)
		}
	}
}

func strictShells(root, completion *cobra.Command) {
	var shells []string
	for _, c := range completion.Commands() {
		shells = append(shells, c.Name())
	}
	completion.Short = "a script that completes commands in a shell"
	completion.Example = "  source <(" + root.Name() + " completion bash)"
	completion.Args = cobra.ArbitraryArgs
	completion.RunE = func(_ *cobra.Command, args []string) error {
		err := errors.New("completion: SHELL is missing")
		if len(args) > 0 {
			err = fmt.Errorf("completion: unknown shell %q", args[0])
		}
		return &Error{err, "give one of " + strings.Join(shells, ", ")}
	}
}

func unknown(root *cobra.Command, where string, args []string) error {
	remedy := "see " + root.DisplayName() + " --help"
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		remedy = "did you mean " + strings.Join(near, " or ") + "? See " + root.DisplayName() + " --help"
	}
	return &Error{fmt.Errorf("%sunknown command %q", where, strings.Join(args, " ")), remedy}
}
