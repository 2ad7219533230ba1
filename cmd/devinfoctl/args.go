package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/config"
)

// exactly is for a command that needs these arguments, by their names.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage("see devinfoctl "+cmd.Name()+" --help", "%s: %s is missing", cmd.Name(), names[len(args)])
		case len(args) > len(names):
			return extra(cmd, args[len(names)])
		}
		return nil
	}
}

// atMostOne is for a command that can do without its argument.
func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return extra(cmd, args[1])
	}
	return nil
}

// none is for a command without arguments.
func none(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return extra(cmd, args[0])
	}
	return nil
}

func extra(cmd *cobra.Command, arg string) error {
	return usage("see "+cmd.CommandPath()+" --help", "%s: unexpected argument %q", cmd.Name(), arg)
}

// knownCommand is for the root: any argument of it is an unknown command.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage("did you mean "+nearestCommand(root, args[0])+"? See devinfoctl --help", "unknown command %q", args[0])
}

func nearestCommand(parent *cobra.Command, name string) string {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return config.Nearest(name, names)
}

// helpCommand shows the help of a command, and refuses unknown ones.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "the help of a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				name := strings.Join(args, " ")
				return usage("did you mean "+nearestCommand(root, args[0])+"? See devinfoctl --help", "help: unknown command %q", name)
			}
			return cmd.Help()
		},
	}
}

// refuseUnknownShells makes cobra's completion command fail where it would show its help as
// if nothing were wrong.
func refuseUnknownShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	n := slices.IndexFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == "completion" })
	if n < 0 {
		return
	}
	completion := root.Commands()[n]
	var shells []string
	for _, c := range completion.Commands() {
		shells = append(shells, c.Name())
	}
	completion.Short = "a script that completes commands in a shell"
	completion.Example = "  source <(devinfoctl completion bash)"
	completion.Args = cobra.ArbitraryArgs
	completion.RunE = func(_ *cobra.Command, args []string) error {
		err := fmt.Errorf("completion: SHELL is missing")
		if len(args) > 0 {
			err = fmt.Errorf("completion: unknown shell %q", args[0])
		}
		return &failure{exitUsage, err, "give one of " + strings.Join(shells, ", ")}
	}
}
