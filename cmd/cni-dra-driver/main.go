// Cni-dra-driver is the node agent of the CNI DRA driver. It attaches the pods of a node to the CNI networks that
// their resource claims request. It runs as a container of a DaemonSet (see deploy/cni-dra-driver) or as a process
// of the host. Package pkg/dra does the work.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/ctl/commandline"
)

const driver = view.Driver // short for the name of the DRA driver

func main() { os.Exit(commandline.RunAgent(command(), os.Stderr, os.Geteuid())) }

const about = `cni-dra-driver attaches the pods of this node to the CNI networks that their
ResourceClaims request (driver ` + driver + `). It needs root, the
kubelet's plugin directories, and a container runtime with NRI and CDI.

Exit codes:
  0  ended by a signal, or uninstalled
  1  cni-dra-driver could not start, continue or uninstall, or a command failed
  2  the command line is invalid`

func command() *cobra.Command {
	o := options{linger: linger}
	cmd := &cobra.Command{
		Use: "cni-dra-driver", Short: "attach pods to CNI networks by Dynamic Resource Allocation", Long: about,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd.Flags()); err != nil {
				return clierr.Misuse("see cni-dra-driver --help", "%w", err)
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
			klog.SetSlogLogger(log) // also for the Kubernetes libraries
			return run(cmd.Context(), &o, log)
		},
	}
	o.add(cmd.Flags())
	cmd.AddCommand(clearCommand(), inventoryCommand())
	commandline.Finish(cmd)
	return cmd
}

const clearAbout = `Clear makes the driver of this node drop the records of attachments whose DEL was given up
(devinfoctl list --undeleted). This takes at most a minute and runs no further DEL. The driver then
offers their devices again. First clean up after the failed DEL: remove addresses in the files of an
IPAM plugin and leftover interfaces, and reset device settings.`

// clearCommand leaves a request for the running driver, because only the driver changes records.
func clearCommand() *cobra.Command {
	var pluginsDir, nodeConfig string
	cmd := &cobra.Command{
		Use: "clear CLAIM-UID...", Short: "drop the records of attachments whose DEL was given up", Long: clearAbout,
		Args: commandline.Many("CLAIM-UID"),
		RunE: func(cmd *cobra.Command, uids []string) error {
			dir := filepath.Join(pluginsDir, driver, "state")
			if pluginsDir == "" {
				node, err := config.LoadNode(nodeConfig)
				if err != nil {
					return fmt.Errorf("--node-config: %w", err)
				}
				dir = state.NodeDir(node.StateDir)
			}
			if _, err := os.Stat(dir); err != nil {
				return fmt.Errorf("the driver's state: %w: give --kubelet-plugins-dir the value that the driver has", err)
			}
			var errs []error
			for _, uid := range uids {
				c, err := state.Clear(dir, uid)
				errs = append(errs, err)
				if c == nil {
					continue
				}
				for _, at := range c.Undeleted {
					namespace, name := at.Args.Name()
					fmt.Fprintf(cmd.OutOrStdout(), "claim %s/%s, pod %s/%s: interface %s in network %s, device %s/%s: cleared\n",
						c.Namespace, c.Name, namespace, name, at.IfName, at.Network, at.Pool, at.Device)
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().StringVar(&pluginsDir, "kubelet-plugins-dir", "", "`directory` of the kubelet's plugins, the value that the driver has (default: the state is in $"+state.DirVariable+" if set, else where the last driver of this node had it)")
	cmd.Flags().StringVar(&nodeConfig, "node-config", config.NodeFile, "node settings `file` of the devinfo plugin, for stateDir; it need not exist")
	return cmd
}

// gateName is the program that the runtime runs for each container of a claim. It is installed beside the CNI
// plugins, because the host allows programs to run from there.
const gateName = "cni-dra-gate"

// keepGate installs the gate program if it differs. The runtime creates no container of a claim without it.
func (o *options) keepGate(log *slog.Logger) error {
	warning, err := install.Program(o.gate, filepath.Join("/", o.hostRoot, o.cniBinDir, gateName))
	if err != nil {
		return fmt.Errorf("%s: %w", gateName, err)
	}
	if warning != nil {
		log.Warn("the runtime may not be allowed to run the gate program", "program", gateName, "error", warning)
	}
	return nil
}
