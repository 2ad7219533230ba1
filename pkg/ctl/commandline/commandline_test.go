package commandline_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
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

func TestCommandLineIsCheckedWithRemedy(t *testing.T) {
	goldentest.Lines(t, "testdata/lines.txt", func(line string) []string {
		var out, ignored bytes.Buffer
		var format string
		prints := func(cmd *cobra.Command, args []string) error {
			fmt.Fprint(&out, cmd.DisplayName(), " ", args, " ", format)
			return nil
		}
		root := &cobra.Command{Use: "prog", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "my prog"}, RunE: prints}
		commandline.Choice(root, root.PersistentFlags(), &format, "format", "f", "table", "how to print", "table", "json")
		root.AddCommand(&cobra.Command{Use: "show NAME [KIND]", Args: commandline.Args(1, "NAME", "KIND"), RunE: prints},
			&cobra.Command{Use: "all FILE...", Args: commandline.Many("FILE"), RunE: prints}, &cobra.Command{Use: "none", RunE: prints})
		commandline.Finish(root)
		root.SetOut(&out)
		root.SetErr(&ignored)
		root.SetArgs(strings.Split(strings.ReplaceAll(line, `""`, ""), " "))
		if err := commandline.Run(root); err != nil {
			e := difftest.As[*clierr.Error](t, err)
			fmt.Fprint(&out, "! ", e, "; ", e.Remedy)
			difftest.Same(t, line+": the exit code", e.Code, clierr.Usage)
		}
		return strings.Split(strings.TrimSuffix(strings.ReplaceAll(out.String(), build.Read().String(), "VERSION"), "\n"), "\n")
	})
}

// A signal ends the context. The terminal gets no control characters of the command.
func TestRunEndsContextAndPrintsSafely(t *testing.T) {
	var out, errOut bytes.Buffer
	root := &cobra.Command{Use: "prog", RunE: func(cmd *cobra.Command, _ []string) error {
		cmd.Print("\x1b[1m")
		cmd.PrintErr("\x1b[2m")
		difftest.Must(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		<-cmd.Context().Done()
		return cmd.Context().Err()
	}}
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetArgs([]string{}) // with nil cobra would take those of the test
	commandline.Finish(root)
	if err := commandline.Run(root); err == nil {
		t.Error("no error")
	}
	difftest.Same(t, "output", out.String()+errOut.String(), `\u001b[1m\u001b[2m`)
}

func TestFlagErrorsNameFlagAndValue(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for name, usage := range map[string]string{"conf": "`file`", "run": "`directory`", "bin": "`directories`", "nri": "`socket`", "host": "`name`", "same": "`file`"} {
		flags.String(name, map[bool]string{true: "default"}[name == "same"], usage)
	}
	errs := func() string {
		var errs commandline.FlagErrors
		errs.Paths(flags)
		errs.Value(true, "n", 5, "is odd")
		errs.Value(false, "n", 4, "is odd")
		errs.If(true, "--a requires --b")
		errs.If(false, "--b requires --c")
		return errors.Join(errs...).Error()
	}
	const always = "--n: \"5\" is odd\n--a requires --b"
	difftest.Same(t, "defaults", errs(), always)
	for flag, value := range map[string]string{"conf": "a", "run": "b", "bin": "/c:d:/e:f", "nri": "g", "host": "h", "same": "default"} {
		difftest.Must(t, flags.Set(flag, value))
	}
	want := []string{`--bin: "d"`, `--bin: "f"`, `--conf: "a"`, `--nri: "g"`, `--run: "b"`, ""}
	difftest.Same(t, "relative paths", errs(), strings.Join(want, " is not an absolute path\n")+always)
	for flag, value := range map[string]string{"conf": "/a", "run": "/b", "bin": "/c:/e", "nri": "/g"} {
		difftest.Must(t, flags.Set(flag, value))
	}
	difftest.Same(t, "absolute paths", errs(), always)
}

func TestFlagMustNameDirectoryOrProgram(t *testing.T) {
	dir := t.TempDir()
	file, program := filepath.Join(dir, "file"), filepath.Join(dir, "program")
	difftest.Write(t, file, "", 0o644)
	difftest.Write(t, program, "", 0o755)
	for path, want := range map[string]struct{ dir, program string }{
		"": {}, dir: {program: "is no program (mode d"}, program: {dir: "is no directory (mode -rwx"},
		file: {"is no directory (mode -rw-", "is no program (mode -rw-"}, file + "s": {"no such file", "no such file"},
	} {
		for _, check := range []struct {
			err  error
			want string
		}{{commandline.Dir("x", path, "do y"), want.dir}, {commandline.Program("x", path, "do y"), want.program}} {
			if check.want == "" {
				difftest.Must(t, check.err)
			} else {
				difftest.Says(t, check.err, "--x: ", path, check.want, ": do y")
			}
		}
	}
}

func TestLoggerHasFormatAndVerbosity(t *testing.T) {
	for format, want := range map[string]slog.Handler{"text": new(slog.TextHandler), "json": new(slog.JSONHandler)} {
		log := commandline.Logger(format, 4)
		difftest.Same(t, format, fmt.Sprintf("%T", log.Handler()), fmt.Sprintf("%T", want))
		difftest.Same(t, format+": level", fmt.Sprint(log.Enabled(t.Context(), slog.LevelDebug), log.Enabled(t.Context(), slog.LevelDebug-1)), "true false")
	}
}
