// Devinfo-agent is the node agent of the devinfo plugin, for clusters with Multus. It
// keeps the plugin and its settings on the node, removes what dead pods have left, tells
// Prometheus of the attachments, and gives containers their device information by NRI.
// It runs as a container of a DaemonSet or as a process of the host, and asks no API
// server for anything.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/ctl/commandline"
)

// The exit codes. The help names them too.
const (
	exitFailed = 1 // it could not start, or not uninstall
	exitUsage  = 2 // the command line is invalid
)

func main() {
	// A signal ends the agent; the next one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	started := false
	err := command(&started).ExecuteContext(ctx)
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "devinfo-agent: %v\n", err)
	if !started {
		os.Exit(exitUsage)
	}
	os.Exit(exitFailed)
}

const about = `devinfo-agent keeps the CNI plugin devinfo and its settings on this node, removes what
dead pods have left, and gives containers their device information. It needs root, but
no access to the Kubernetes API.

Exit codes:
  0  ended by a signal, or uninstalled
  1  it could not start, or not uninstall
  2  the command line is invalid`

// command sets started once the command line is understood.
func command(started *bool) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "devinfo-agent", Short: "the plugin devinfo on this node, and its device information in containers", Long: about,
		Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			*started = true
			return run(cmd.Context(), &o, commandline.Logger(o.logFormat, o.verbosity))
		},
	}
	o.add(cmd.Flags())
	commandline.Version(cmd, cmd.Name()+" "+build.Read().String())
	return cmd
}
