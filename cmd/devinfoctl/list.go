package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/check"
	"devinfo-cni.io/pkg/ctl/clierr"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/journal"
)

const listHelp = `Lists the attachments of the node, as the plugin's journal and the records of
cni-dra-driver have them, and what has become of each, by the comparison that check shows:

  ok              all is as ADD left it, but perhaps for optional facts
  adding          ADD has not ended yet, or was killed
  file missing    the device-info file or the CDI spec that ADD wrote is gone
  file invalid    it is there, and is not what ADD can have written
  device gone     the device that ADD found is no longer on the node
  wrong device    the device-info file is another device's, or another interface has
                  taken the place of the one that ADD found
  interface gone  the interface is no longer in the network namespace
  stale           the network namespace is gone, or it is of an earlier boot; no DEL has come,
                  or it failed
  corrupt         the journal's entry cannot be read
  newer format    the entry is of a newer devinfo
  unknown         it cannot be looked at: without root, or from within a container

and only of networks that cni-dra-driver attaches:

  prepared      the pod has no sandbox yet
  deleting      DEL runs, or has failed and will be tried again
  undeleted     DEL, or restoring the device, has failed too often: nobody waits for it

If the pod is unknown the container is shown. Attachments without a device-info file,
delegates and leases are not in the journal. A device that others may have too, by shared
leases, is "(shared)"; -o json has the lease of each, exclusive or shared, and none where the
device is only named. check explains what is wrong with one; gc removes what is "stale".
-o wide adds the container, the PF, representor and RDMA device that ADD recorded, the claim, the
file, the CDI device, and the problem: more about the state, or why ADD found no device.
`

func listCommand(t *tool) *cobra.Command {
	var namespace string
	var undeleted bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "the attachments of the node, and what has become of them",
		Long:  listHelp,
		Example: `  devinfoctl list
  devinfoctl list -n shop -o wide
  devinfoctl list --undeleted
  devinfoctl list -o json | jq '.attachments[] | select(.state != "Ok")'
  devinfoctl --capture node.txtar list`,
		RunE: t.onHost(func(h *host, _ []string) error {
			list, err := h.Attachments()
			if err != nil {
				return err
			}
			return t.list(h, slices.DeleteFunc(list, func(a node.Attachment) bool {
				of, _, _ := strings.Cut(a.Pod, "/")
				return namespace != "" && namespace != of || undeleted && a.State != check.Undeleted
			}))
		}),
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only the pods of this `namespace`")
	cmd.Flags().BoolVar(&undeleted, "undeleted", false, "only what cni-dra-driver has given up deleting")
	_ = cmd.RegisterFlagCompletionFunc("namespace", t.completeNamespaces)
	return cmd
}

func holderCommand(t *tool) *cobra.Command {
	return &cobra.Command{
		Use:   "holder DEVICE",
		Short: "which attachments have a device",
		Long: `Lists the attachments that have, share or name a device, as list does. DEVICE is a PCI
address (that of a PF finds its VFs too), a vDPA or RDMA device, a representor or a socket.

Exits with 1 if no attachment has it.`,
		Example: "  devinfoctl holder 03:00.5\n  devinfoctl holder eth7 -o wide",
		Args:    commandline.Args(1, "DEVICE"), ValidArgsFunction: t.completeDevices,
		RunE: t.onHost(func(h *host, args []string) error {
			list, err := h.Attachments()
			if err != nil {
				return err
			}
			more, err := h.Holds()
			if err != nil {
				return err
			}
			list = node.Holders(append(list, more...), args[0])
			if err := t.list(h, list); err != nil || len(list) > 0 {
				return err
			}
			return clierr.ErrFound
		}),
	}
}

func (t *tool) list(h *host, list []node.Attachment) error {
	return t.print(map[string]any{"attachments": list}, func(w io.Writer) {
		if len(list) == 0 {
			fmt.Fprintln(w, "no attachments")
			return
		}
		var states []colour
		for _, a := range list {
			states = append(states, colourOf(a.State))
		}
		t.printRows(w, t.listRows(h, list), states...)
	})
}

func (t *tool) listRows(h *host, list []node.Attachment) [][]string {
	rows := [][]string{{"POD", "NETWORK", "INTERFACE", "TYPE", "DEVICE", "STATE"}}
	if t.output == "wide" {
		rows[0] = []string{"POD", "CONTAINER", "NETWORK", "INTERFACE", "TYPE", "DEVICE", "PF", "REPRESENTOR", "RDMA", "CLAIM", "FILE", "CDI", "STATE", "PROBLEM"}
	}
	for _, a := range list {
		if t.output != "wide" {
			rows = append(rows, []string{a.Holder(), a.Network, a.IfName, a.Type, deviceOf(a), string(a.State)})
			continue
		}
		file := a.File
		if filepath.Dir(file) == filepath.Clean(h.Settings.DeviceInfoDir) {
			file = filepath.Base(file)
		}
		rows = append(rows, []string{
			a.Pod, node.ShortID(a.ContainerID), a.Network, a.IfName, a.Type, deviceOf(a), a.PF, a.Representor, a.RDMA, a.Claim,
			shorten(a.ContainerID, file), shorten(a.ContainerID, a.CDI), string(a.State), a.Why,
		})
	}
	return rows
}

func deviceOf(a node.Attachment) string {
	if a.Lease == journal.Shared {
		return a.Device + " (shared)"
	}
	return a.Device
}

// shorten cuts the container's ID in a name that has it whole.
func shorten(id, name string) string {
	if len(id) <= 16 { // nothing would be gained
		return name
	}
	return strings.ReplaceAll(name, id, node.ShortID(id)+"…")
}

// state is one in its colour.
func (t *tool) state(s check.State) string { return t.paint(colourOf(s), string(s)) }

// colourOf is yellow for what is being made or removed, or cannot be read.
func colourOf(s check.State) colour {
	switch s {
	case check.OK, "":
		return green
	case check.Adding, check.Prepared, check.Deleting, check.Unknown:
		return yellow
	}
	return red
}
