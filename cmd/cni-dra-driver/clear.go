package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/dra/state"
)

const clearAbout = `Clear has the agent of this node forget the attachments of claims whose DEL was given up
(devinfoctl list --abandoned), without another DEL, within a minute. Their devices are offered
again. First remove what they left behind: an address in an IPAM plugin's files, an interface, a
device's setting.`

// clearCommand is for administrators. It runs beside the agent, which alone changes records.
func clearCommand() *cobra.Command {
	var pluginsDir string
	cmd := &cobra.Command{
		Use: "clear CLAIM-UID...", Short: "forget attachments whose DEL was given up", Long: clearAbout, Args: cobra.MinimumNArgs(1),
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
				list, err := state.ClearLeftovers(dir, types.UID(uid))
				if err != nil {
					errs = append(errs, err)
					continue
				}
				for _, l := range list {
					fmt.Fprintf(cmd.OutOrStdout(), "claim %s, pod %s: interface %s in network %s, device %s: cleared\n", l.Claim, l.Pod, l.IfName, l.Network, l.Device)
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().StringVar(&pluginsDir, "kubelet-plugins-dir", "", "`directory` of the kubelet's plugins, as the agent has it (by default the state is in $"+state.DirVariable+", else in "+state.DefaultDir+")")
	return cmd
}
