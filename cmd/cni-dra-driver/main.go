// Cni-dra-driver is the node agent of the CNI DRA driver. It runs on every node that
// attaches pods to CNI networks by resource claims: as a container of a DaemonSet, see
// deploy/cni-dra-driver, or as a process of the host. Package pkg/dra does the work.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"devinfo-cni.io/pkg/ctl/clierr"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/dra/state"
)

// driver is the DRA driver's name. DeviceClasses, claims and RBAC rules name it, so it
// is no flag.
const driver = "cni.dra.networking.x-k8s.io"

func main() { os.Exit(commandline.RunAgent(command(), os.Stderr, os.Geteuid())) }

const about = `cni-dra-driver attaches the pods of this node to the CNI networks that their
ResourceClaims ask for (driver ` + driver + `). It needs root, the
kubelet's plugin directories, and a container runtime with NRI and CDI.

Exit codes:
  0  ended by a signal
  1  it could not start or not go on, or a command failed
  2  the command line is invalid`

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "cni-dra-driver", Short: "attach pods to CNI networks by Dynamic Resource Allocation", Long: about,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
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
			klog.SetSlogLogger(log) // for the Kubernetes libraries too
			return run(cmd.Context(), &o, log)
		},
	}
	o.add(cmd.Flags())
	cmd.AddCommand(clearCommand(), inventoryCommand())
	commandline.Finish(cmd)
	return cmd
}

const clearAbout = `Clear has the agent of this node forget the attachments of claims whose DEL was given up
(devinfoctl list --undeleted), without another DEL, within a minute. Their devices are offered
again. First remove what they left behind: an address in an IPAM plugin's files, an interface, a
device's setting.`

// clearCommand runs beside the agent, which alone changes records.
func clearCommand() *cobra.Command {
	var pluginsDir string
	cmd := &cobra.Command{
		Use: "clear CLAIM-UID...", Short: "forget attachments whose DEL was given up", Long: clearAbout,
		Args: func(cmd *cobra.Command, args []string) error {
			return commandline.Args(1, "CLAIM-UID")(cmd, args[:min(1, len(args))])
		},
		RunE: func(cmd *cobra.Command, uids []string) error {
			dir := state.NodeDir()
			if pluginsDir != "" {
				dir = filepath.Join(pluginsDir, driver, "state")
			}
			if _, err := os.Stat(dir); err != nil {
				return fmt.Errorf("the agent's state: %w: give --kubelet-plugins-dir as the agent has it", err)
			}
			var errs []error
			for _, uid := range uids {
				c, err := state.Clear(dir, types.UID(uid))
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
	cmd.Flags().StringVar(&pluginsDir, "kubelet-plugins-dir", "", "`directory` of the kubelet's plugins, as the agent has it (by default the state is in $"+state.DirVariable+", else in "+state.DefaultDir+")")
	return cmd
}
