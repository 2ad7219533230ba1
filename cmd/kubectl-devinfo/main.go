// Kubectl-devinfo shows which devices are behind the network interfaces of pods, in the
// whole cluster and from the API alone: kubectl devinfo. Package cluster says how.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/exec"

	"devinfo-cni.io/pkg/ctl/commandline"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	t := newTool(streams)
	root := t.root()
	if filepath.Base(os.Args[0]) == "kubectl_complete-devinfo" { // how kubectl completes plugins
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	os.Exit(t.report(root.ExecuteContext(ctx)))
}

// errNone ends a command that found nothing and has said so.
var errNone = errors.New("nothing found")

// The exit codes, as devinfoctl's. The help of the root command names them too.
const (
	exitOK    = 0
	exitFound = 1 // nothing was found
	exitUsage = 2 // the command line is invalid
	exitBlind = 3 // somebody could not be asked
)

// report prints an error and gives the exit code: that of devinfoctl where it ran on a node.
func (t *tool) report(err error) int {
	var remote exec.CodeExitError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errNone):
		return exitFound
	case errors.As(err, &remote):
		return remote.Code
	}
	fmt.Fprintln(t.ErrOut, "kubectl devinfo:", err)
	var line *commandline.Error
	switch {
	case errors.As(err, &line):
		fmt.Fprintln(t.ErrOut, " ", line.Remedy)
	case !t.started: // cobra's own
		fmt.Fprintln(t.ErrOut, "  see kubectl devinfo --help")
	default:
		return exitBlind
	}
	return exitUsage
}
