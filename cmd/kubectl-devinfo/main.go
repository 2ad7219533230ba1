// Kubectl-devinfo shows which devices are behind the network interfaces of pods, in the
// whole cluster and from the API alone: kubectl devinfo. Package cluster says how.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/exec"

	"devinfo-cni.io/pkg/ctl/commandline"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(report(newRoot(streams).ExecuteContext(ctx), streams))
}

// errNone ends a command that found nothing and has said so.
var errNone = errors.New("nothing found")

// report prints an error and gives the exit code: 1 where nothing was found, that of
// devinfoctl where it ran on a node, else 2.
func report(err error, streams genericiooptions.IOStreams) int {
	var remote exec.CodeExitError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errNone):
		return 1
	case errors.As(err, &remote):
		return remote.Code
	}
	fmt.Fprintln(streams.ErrOut, "kubectl devinfo:", err)
	var line *commandline.Error
	if errors.As(err, &line) {
		fmt.Fprintln(streams.ErrOut, " ", line.Remedy)
	}
	return 2
}
