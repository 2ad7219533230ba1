package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

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
			var errs []error
			for _, uid := range uids {
				list, err := state.ClearLeftovers(filepath.Join(pluginsDir, driver, "state"), types.UID(uid))
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
	cmd.Flags().StringVar(&pluginsDir, "kubelet-plugins-dir", kubeletplugin.KubeletPluginsDir, "`directory` of the kubelet's plugins, as the agent has it")
	return cmd
}
