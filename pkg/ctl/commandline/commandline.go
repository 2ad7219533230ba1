// Package commandline has the common parts of the programs' command lines.
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
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/clierr"
)

// Args returns a check of a command's arguments. names are all arguments, and must is the number of required ones.
// No argument may be empty.
func Args(must int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		see := "see " + cmd.CommandPath() + " --help"
		switch empty := slices.Index(args, ""); {
		case len(args) < must:
			return clierr.Misuse(see, "%s: %s is missing", cmd.Name(), names[len(args)])
		case len(args) > len(names):
			return clierr.Misuse(see, "%s: unexpected argument %q", cmd.Name(), args[len(names)])
		case empty >= 0: // usually an unset variable in a script
			return clierr.Misuse(see, "%s: %s is empty", cmd.Name(), names[empty])
		}
		return nil
	}
}

// Many returns a check that a command has at least one argument. The first one must not be empty.
func Many(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return Args(1, name)(cmd, args[:min(1, len(args))]) }
}

// FlagErrors collects errors of flags.
type FlagErrors []error

// If adds an error if the condition is true.
func (f *FlagErrors) If(wrong bool, message string) {
	if wrong {
		*f = append(*f, errors.New(message))
	}
}

// Value adds an error for the value of a flag if wrong is true.
func (f *FlagErrors) Value(wrong bool, flag string, value any, why string) {
	f.If(wrong, fmt.Sprintf("--%s: %q %s", flag, fmt.Sprint(value), why))
}

// Paths adds an error for each path that is not absolute, in the flags whose usage says that they name a `file`, a
// `directory`, `directories` or a `socket`.
func (f *FlagErrors) Paths(flags *pflag.FlagSet) {
	flags.VisitAll(func(flag *pflag.Flag) {
		value := flag.Value.String()
		var paths []string
		switch names, _ := pflag.UnquoteUsage(flag); names {
		case "file", "directory", "socket":
			paths = []string{value}
		case "directories":
			paths = filepath.SplitList(value)
		}
		for _, path := range paths {
			f.Value(value != flag.DefValue && !filepath.IsAbs(path), flag.Name, path, "is not an absolute path")
		}
	})
}

// Dir returns an error with a remedy if a flag does not name a directory. "" is valid.
func Dir(flag, path, remedy string) error {
	return named(flag, path, remedy, "directory", fs.FileMode.IsDir)
}

// Program returns an error with a remedy if a flag does not name an executable file.
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

// IsTerminal reports whether output goes to a terminal, and not into a file or a pipe.
func IsTerminal(w io.Writer) bool {
	file, is := w.(*os.File)
	return is && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}

// Progress prints on a terminal, once work has lasted for two seconds, how long it lasts. done removes the line.
func Progress(to io.Writer, what string) (done func()) {
	if !IsTerminal(to) {
		return func() {}
	}
	return progress(to, what)
}

func progress(to io.Writer, what string) (done func()) {
	ctx, stop := context.WithCancel(context.Background())
	var line sync.WaitGroup
	line.Go(func() {
		tick := time.Tick(time.Second)
		for seconds := 1; ; seconds++ {
			select {
			case <-ctx.Done():
				if seconds > 2 {
					fmt.Fprint(to, "\r\x1b[K") // erases the line (ECMA-48, EL)
				}
				return
			case <-tick:
				if seconds >= 2 {
					fmt.Fprintf(to, "\r%s: %d s", clierr.Printable(what), seconds)
				}
			}
		}
	})
	return func() {
		stop()
		line.Wait()
	}
}

// Failed is the exit code of an agent that failed. The help of the agents contains it too.
const Failed = 1

// Run runs a command line. The first signal ends its context; the next one ends the process at once.
func Run(root *cobra.Command) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	root.SetOut(clierr.Terminal(root.OutOrStdout())) // texts of files, captures and the API pass no other place
	root.SetErr(clierr.Terminal(root.ErrOrStderr()))
	return root.ExecuteContext(ctx)
}

// RunAgent runs the command line of an agent, prints the error, and returns the exit code. The remedy for a
// permission error depends on the agent's user, uid.
func RunAgent(root *cobra.Command, stderr io.Writer, uid int) (code int) {
	err := Run(root)
	if help := clierr.Rights(err, uid); help != "" && !errors.As(err, new(*clierr.Error)) {
		err = clierr.For(err, help)
	}
	if code = clierr.Report(stderr, root.Name(), true, err); code == clierr.Blind {
		code = Failed
	}
	return code
}

// Logger returns a logger to standard error in the format "text" or "json". Verbosity n is slog's level -n, so
// 4 is slog.LevelDebug.
func Logger(format string, verbosity int) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.Level(-verbosity)}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}

// Choice adds a flag that accepts only the allowed values.
func Choice(cmd *cobra.Command, flags *pflag.FlagSet, to *string, name, short, preset, usage string, allowed ...string) {
	*to = preset
	flags.VarP(choice{to, name, allowed}, name, short, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
}

type choice struct {
	to      *string
	name    string
	allowed []string
}

func (c choice) String() string { return *c.to }
func (choice) Type() string     { return "string" }

func (c choice) Set(value string) error {
	if !slices.Contains(c.allowed, value) {
		return clierr.Misuse("give one of "+strings.Join(c.allowed, ", "), "--%s: unknown value %q", c.name, value)
	}
	*c.to = value
	return nil
}

// Finish completes a root command that takes no arguments. It adds the flag --version. The error for an unknown
// command suggests similar commands, and the error for an unknown flag names the help. Commands without Args get a
// check that they have no arguments. Print the errors with [clierr.Report].
func Finish(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = build.Read().String()
	root.Flags().Bool("version", false, "version for "+root.DisplayName()) // cobra's flag has the shorthand -v
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if e, ok := errors.AsType[*clierr.Error](err); ok { // from choice.Set
			return e
		}
		return clierr.Misuse("see "+cmd.CommandPath()+" --help", "%w", err)
	})
	for _, cmd := range root.Commands() {
		if cmd.Args == nil {
			cmd.Args = Args(0)
		}
	}
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		see := "see " + root.DisplayName() + " --help"
		if near := root.SuggestionsFor(args[0]); len(near) > 0 {
			see = "did you mean " + strings.Join(near, " or ") + "? See " + root.DisplayName() + " --help"
		}
		return clierr.Misuse(see, "unknown command %q", args[0])
	}
}
