// Cni-dra-driver is the node agent of the CNI DRA driver. It runs on every node that
// attaches pods to CNI networks by resource claims: as a container of a DaemonSet, see
// deploy/cni-dra-driver, or as a process of the host. Package pkg/dra does the work.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/ctl/commandline"
)

// driver is the DRA driver's name. DeviceClasses, claims and RBAC rules name it, so it
// is no flag.
const driver = "cni.dra.networking.x-k8s.io"

func main() {
	// After the first signal the running work is finished; the next one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	cmd := command()
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "cni-dra-driver: %v\n", err)
		os.Exit(1)
	}
}

const about = `cni-dra-driver attaches the pods of this node to the CNI networks that their
ResourceClaims ask for (driver ` + driver + `). It needs root, the
kubelet's plugin directories, and a container runtime with NRI and CDI.`

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "cni-dra-driver", Short: "attach pods to CNI networks by Dynamic Resource Allocation", Long: about,
		Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			o.podResourcesGiven = cmd.Flags().Changed("pod-resources-socket")
			if self, err := os.Executable(); err == nil && o.gate == "" {
				o.gate = filepath.Join(filepath.Dir(self), gateName)
			}
			var level klog.Level
			if err := level.Set(strconv.Itoa(o.verbosity)); err != nil {
				return fmt.Errorf("-v: %w", err)
			}
			log := commandline.Logger(o.logFormat, o.verbosity)
			klog.SetSlogLogger(log) // for the Kubernetes libraries too
			return run(cmd.Context(), &o, log)
		},
	}
	o.add(cmd.Flags())
	commandline.Version(cmd, cmd.Name()+" "+build.Read().String())
	cmd.AddCommand(clearCommand(), inventoryCommand())
	return cmd
}
