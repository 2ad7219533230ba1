package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/ctl/output"
)

const listHelp = `Lists the attachments of the node from the plugin's journal and the records of cni-dra-driver,
with the state of each. NAME selects some of them, as for check. A DEVICE is a PCI address (that of
a PF finds its VFs too), a vDPA or RDMA device, a representor, another interface of the host, also
by its altname, or a socket. check explains the state of an attachment, and docs/glossary.md all
states. gc removes "Stale" attachments.

Exits with 3 if the state of a listed attachment is Unknown, or what is withheld of its device.

If the pod is unknown, POD shows the container. An attachment is not in the journal if it has no
device-info file, no delegates and no leases. "(shared)" marks a device that the attachment holds
by a shared lease; -o json has the kind of each lease, and none for a device that is only named.
-o json adds the container, the PF and RDMA device that ADD recorded, the representor, the claim, the
file, the CDI device, why: more about the state, or why ADD found no device, and withheld: what
containers do not get of the device, and the setting that would change it.
`

func listCommand(t *tool) *cobra.Command {
	var namespace string
	var undeleted bool
	cmd := &cobra.Command{
		Use:   "list [POD|NETWORK|CONTAINER|ATTACHMENT|DEVICE]",
		Short: "list the attachments of the node and their states, or those of a pod, network or device",
		Long:  listHelp,
		Example: `  devinfoctl list
  devinfoctl list -n shop
  devinfoctl list 03:00.5                   # who has the device
  devinfoctl list --undeleted
  devinfoctl list -o json | jq '.attachments[] | select(.state != "Ok")'
  devinfoctl --capture node.txtar list`,
		Args: commandline.Args(0, "NAME"), ValidArgsFunction: t.complete(true),
		RunE: t.onHost(func(_ *cobra.Command, h *host, args []string) error {
			list, err := h.Attachments()
			leased, leasedErr := h.Holds()
			if err = cmp.Or(err, leasedErr); err == nil && len(args) > 0 {
				list, err = h.Choose(append(list, leased...), args[0])
			}
			if err != nil {
				return err
			}
			list = slices.DeleteFunc(list, func(a node.Attachment) bool {
				return namespace != "" && (a.Pod == "" || namespace != a.Namespace) || undeleted && a.State != check.Undeleted
			})
			if t.output != "table" {
				err = h.Withhold(list)
			}
			return cmp.Or(t.list(h, list), err)
		}),
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only the pods of this `namespace`")
	cmd.Flags().BoolVar(&undeleted, "undeleted", false, "list only attachments that cni-dra-driver could not delete")
	return cmd
}

func (t *tool) list(h *host, list []node.Attachment) error {
	err := t.print(map[string]any{"attachments": list}, false, func(w *bytes.Buffer) {
		if len(list) == 0 {
			fmt.Fprintln(w, "no attachments")
			return
		}
		rows := [][]string{{"POD", "NETWORK", "INTERFACE", "TYPE", "DEVICE", "STATE"}}
		for _, a := range list {
			device := a.Device
			if a.Lease == journal.Shared {
				device += " (shared)"
			}
			rows = append(rows, []string{a.Holder(), a.Network, a.Interface, a.Type, device, string(a.State)})
		}
		_ = output.Rows(w, rows)
	})
	if err == nil && slices.ContainsFunc(list, isUnknown) {
		err = h.unseen("list: some attachments could not be examined")
	}
	return err
}

func isUnknown(a node.Attachment) bool { return a.State == check.Unknown }
