// Devinfoctl shows, checks and explains the device information of a node. It is for people:
// the plugin devinfo, which container runtimes run, works without it. All commands except
// install and gc --yes only read.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"devinfo-cni.io/pkg/ctl/remedy"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is the program; it gives the exit code. SIGINT and SIGTERM end the context
// of the command, so that what was unpacked is removed.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends what does not look at the context
	t := &tool{stdin: stdin, stdout: stdout, stderr: stderr}
	defer t.close()
	root := newRoot(t)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	return remedy.Report(stderr, "devinfoctl", t.started, err)
}
