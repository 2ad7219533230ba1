package main

import "github.com/spf13/cobra"

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
