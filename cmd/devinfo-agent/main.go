// Devinfo-agent is the node agent of the devinfo plugin, for clusters with Multus. It keeps the plugin and
// its settings on the node, cleans up after stale attachments, exports metrics about attachments, and gives
// containers their device information through NRI. It runs in a DaemonSet or as a process of the host, and
// does not use the Kubernetes API.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/ctl/clierr"
	"devinfo-cni.io/pkg/ctl/commandline"
)

func main() { os.Exit(commandline.RunAgent(command(), os.Stderr, os.Geteuid())) }

const about = `devinfo-agent installs the CNI plugin devinfo and its settings on this node, cleans up
after stale attachments, and gives containers their device information. It needs root, but no
access to the Kubernetes API.

Exit codes:
  0  stopped by a signal, or uninstalled
  1  cannot start or uninstall
  2  the command line is invalid`

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "devinfo-agent", Short: "install the plugin devinfo on this node and give containers their device information", Long: about,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return clierr.Misuse("see devinfo-agent --help", "%w", err)
			}
			return run(cmd.Context(), &o, commandline.Logger(o.logFormat, o.verbosity))
		},
	}
	o.add(cmd.Flags())
	commandline.Finish(cmd)
	return cmd
}
