// Devinfoctl shows, checks and explains the device information of a node. It is for people:
// the plugin devinfo, which container runtimes run, works without it. All commands except
// install and gc --yes only read.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/node"
)

// The exit codes. The help of the root command names them too.
const (
	exitOK    = 0
	exitFound = 1 // something is not as it should be
	exitUsage = 2 // the command line is invalid
	exitBlind = 3 // something could not be read, or not be done
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is the program; it gives the exit code. SIGINT and SIGTERM end the context
// of the command, so that what was unpacked is removed.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends what does not look at the context
	t := &tool{stdin: stdin, stdout: stdout, stderr: stderr, clock: time.Now}
	defer t.close()
	root := newRoot(t)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return t.report(root.ExecuteContext(ctx))
}

var (
	errPermission = fs.ErrPermission
	errReadOnly   = syscall.EROFS
)

// A failure is an error with the exit code that it means and what to do about it.
type failure struct {
	code   int
	err    error
	remedy string // "" = the message says it
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// usage is the error for an invalid command line.
func usage(remedy, format string, args ...any) error {
	return &commandline.Error{Err: fmt.Errorf(format, args...), Remedy: remedy}
}

// blind is the error for something that could not be read or done. A plain error means the
// same, without a remedy.
func blind(err error, remedy string) error { return &failure{exitBlind, err, remedy} }

// errFound ends a command that has printed what is wrong: nothing more is said.
var errFound = &failure{code: exitFound, err: errors.New("something is wrong")}

// report prints an error, once and with its remedy, and gives the exit code.
func (t *tool) report(err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errFound) {
		return exitFound
	}
	fmt.Fprintf(t.stderr, "devinfoctl: %v\n", err)
	code, remedy := exitBlind, ""
	if !t.started { // cobra's own: an unknown command or flag, too many arguments
		code, remedy = exitUsage, "see devinfoctl --help"
	}
	var f *failure
	if errors.As(err, &f) {
		code, remedy = f.code, f.remedy
	}
	var line *commandline.Error
	if errors.As(err, &line) {
		code, remedy = exitUsage, line.Remedy
	}
	var e *node.Error
	if errors.As(err, &e) {
		if remedy = e.Remedy; e.Request {
			code = exitUsage
		}
	}
	if remedy != "" {
		fmt.Fprintf(t.stderr, "  %s\n", printable(remedy))
	}
	return code
}
