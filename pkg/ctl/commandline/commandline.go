// Package commandline has what the programs' command lines have in common, and makes those of
// cobra's commands refuse what they do not know: cobra's own help and completion show some help
// instead, as if nothing were wrong.
package commandline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/ctl/remedy"
)

// Args is for a command with these arguments, of which the first must be there.
func Args(must int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		see := "see " + cmd.CommandPath() + " --help"
		switch empty := slices.Index(args, ""); {
		case len(args) < must:
			return remedy.Misuse(see, "%s: %s is missing", cmd.Name(), names[len(args)])
		case len(args) > len(names):
			return remedy.Misuse(see, "%s: unexpected argument %q", cmd.Name(), args[len(names)])
		case empty >= 0: // a variable of a script that is not set
			return remedy.Misuse(see, "%s: %s is empty", cmd.Name(), names[empty])
		}
		return nil
	}
}

// Wrong is what is wrong with the flags of a command line.
type Wrong []error

// If notes a message if something is wrong.
func (w *Wrong) If(wrong bool, message string) {
	if wrong {
		*w = append(*w, errors.New(message))
	}
}

// Value notes why a flag cannot have its value, if that is wrong.
func (w *Wrong) Value(wrong bool, flag string, value any, why string) {
	w.If(wrong, fmt.Sprintf("--%s: %q %s", flag, fmt.Sprint(value), why))
}

// Path notes a value that is no absolute path.
func (w *Wrong) Path(flag, value string) {
	w.Value(!filepath.IsAbs(value), flag, value, "is not an absolute path")
}

// Given notes that of a flag that need not be given.
func (w *Wrong) Given(flag, value string) {
	if value != "" {
		w.Path(flag, value)
	}
}

// Dir is the error, with a remedy, of a flag that names no directory; "" is not given.
func Dir(flag, path, remedy string) error {
	return named(flag, path, remedy, "directory", fs.FileMode.IsDir)
}

// Program is that of one that names no file that may be executed.
func Program(flag, path, remedy string) error {
	return named(flag, path, remedy, "program", func(m fs.FileMode) bool { return m.IsRegular() && m&0o111 != 0 })
}

func named(flag, path, remedy, what string, is func(fs.FileMode) bool) error {
	if path == "" {
		return nil
	}
	stat, err := os.Stat(path)
	if err == nil && !is(stat.Mode()) {
		err = fmt.Errorf("%s is no %s (mode %s)", path, what, stat.Mode())
	}
	if err != nil {
		err = fmt.Errorf("--%s: %w: %s", flag, err, remedy)
	}
	return err
}

// Failed is the exit code of an agent that could not start, go on, or do what it was asked to. The
// help of agents names it too.
const Failed = 1

// Run runs a command line. The first signal ends its context; the next one ends the process at once.
func Run(root *cobra.Command) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return root.ExecuteContext(ctx)
}

// Agent runs the command line of an agent for the user of that number, says what went wrong, and gives the
// exit code.
func Agent(root *cobra.Command, stderr io.Writer, uid int) (code int) {
	err := Run(root)
	if help := remedy.Rights(err, uid); help != "" && !errors.As(err, new(*remedy.Error)) {
		err = remedy.For(err, help)
	}
	if code = remedy.Report(stderr, root.Name(), true, err); code == remedy.Blind {
		code = Failed
	}
	return code
}

// Logger writes to standard error, as "text" or "json". Verbosity n is slog's level -n, so that 4 is
// slog.LevelDebug.
func Logger(format string, verbosity int) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.Level(-verbosity)}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}

// version gives a root command the flag --version, which prints a line that names the program and its
// build; -v too, if that is nothing else; and a command that does the same, unless it has one. Cobra's own
// would do so by a template, which may call any method of any type: the linker would leave out none.
func version(root *cobra.Command) {
	line := root.Name() + " " + build.Read().String()
	if !slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == "version" }) {
		root.AddCommand(&cobra.Command{
			Use: "version", Short: "what this program was built from", Args: Args(0),
			Run: func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), line) },
		})
	}
	root.InitDefaultHelpFlag() // above it, where flags are not sorted
	short := "v"
	if root.Flags().ShorthandLookup(short) != nil {
		short = ""
	}
	asked := root.Flags().BoolP("version", short, false, "version for "+root.DisplayName())
	run := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *asked {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), line)
			return err
		}
		return run(cmd, args)
	}
}

// narrow wraps what a command's help says of flags, as its author has wrapped the rest.
func narrow(root *cobra.Command) {
	const columns = 100
	help, trimmed := root.HelpFunc(), func(text string) string { return strings.TrimRight(text, " \n") }
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		to, written := cmd.OutOrStdout(), new(strings.Builder)
		cmd.SetOut(written)
		help(cmd, args)
		cmd.SetOut(to)
		text := written.String()
		for _, flags := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
			if flags.HasAvailableFlags() {
				text = strings.Replace(text, trimmed(flags.FlagUsages()), trimmed(flags.FlagUsagesWrapped(columns)), 1)
			}
		}
		fmt.Fprint(to, text)
	})
}

// Finish is for a root command without arguments of its own, whose RunE, flags and commands are there
// already. It gives it its version, and help of 100 columns; and makes it, "help" and "completion" fail for
// commands and shells that do not exist, with an error that names the one that was meant, if one is near,
// and any command for flags that it does not have. Errors are for [remedy.Report].
func Finish(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	version(root)
	narrow(root)
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return remedy.Misuse("see "+cmd.CommandPath()+" --help", "%w", err)
	})
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
		give := "give one of " + strings.Join(shells, ", ")
		if len(args) == 0 {
			return remedy.Misuse(give, "completion: SHELL is missing")
		}
		return remedy.Misuse(give, "completion: unknown shell %q", args[0])
	}
}

func unknown(root *cobra.Command, where string, args []string) error {
	see := "see " + root.DisplayName() + " --help"
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		see = "did you mean " + strings.Join(near, " or ") + "? See " + root.DisplayName() + " --help"
	}
	return remedy.Misuse(see, "%sunknown command %q", where, strings.Join(args, " "))
}
