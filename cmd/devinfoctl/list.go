package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/audit"
	"devinfo-cni.io/pkg/ctl/node"
)

const listHelp = `Lists the attachments of the node, as the plugin's journal and the records of
cni-dra-driver have them, and what has become of each:

  ok            the network namespace, the device and the files are there
  adding        ADD has not ended yet, or was killed
  file missing  the device-info file or the CDI spec that ADD wrote is gone
  device gone   the device that ADD found is no longer on the node
  netns gone    the network namespace is gone, and no DEL has come, or it failed
  orphan        of an earlier boot: neither namespace nor file can be left
  corrupt       the journal's entry cannot be read
  newer format  the entry is of a newer devinfo
  unknown       it cannot be looked at: without root, or from within a container

and only of networks that cni-dra-driver attaches:

  prepared      the pod has no sandbox yet
  deleting      DEL runs, or has failed and will be tried again
  abandoned     DEL, or restoring the device, has failed too often: nobody waits for it

If the pod is unknown the container is shown. Attachments without a device-info file and
without delegates are not in the journal. check explains what is wrong with one; gc removes
"netns gone" and "orphan". -o wide shows containers, claims, files and CDI devices too; on
a narrow terminal columns are left out.

With --watch the list is read again every --interval, and redrawn when it has changed,
until SIGINT. If the output is not a terminal, each change is a line instead; with -o json
each is an object on a line, with -o yaml a document.`

const listExample = `  devinfoctl list
  devinfoctl list -n shop -o wide
  devinfoctl list --watch
  devinfoctl list --abandoned
  devinfoctl list -o json | jq '.[] | select(.state != "ok")'
  devinfoctl --host node.txtar list`

// shortest is the least --interval: each look reads every entry.
const shortest = 100 * time.Millisecond

func listCommand(t *tool) *cobra.Command {
	var watch bool
	var interval time.Duration
	var wanted filter
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "the attachments of the node, and what has become of them",
		Long:    listHelp,
		Example: listExample,
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case interval < shortest:
				return usage(fmt.Sprintf("give %s or more", shortest), "--interval: %s is too short", interval)
			case cmd.Flags().Changed("interval") && !watch:
				return usage("give --watch too, or leave --interval out", "--interval: has no effect without --watch")
			}
			h, err := t.host()
			if err != nil {
				return err
			}
			if watch {
				return t.watch(cmd.Context(), h, wanted, interval)
			}
			return t.list(h, wanted)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "keep running, and show changes as they happen")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "with --watch, the `time` between two reads")
	cmd.Flags().StringVarP(&wanted.namespace, "namespace", "n", "", "only the pods of this `namespace`")
	cmd.Flags().BoolVar(&wanted.abandoned, "abandoned", false, "only what cni-dra-driver has given up deleting")
	_ = cmd.RegisterFlagCompletionFunc("namespace", t.completeNamespaces)
	return cmd
}

// A filter chooses attachments.
type filter struct {
	namespace string // of the pod; "" = any
	abandoned bool
}

// of gives those of the host.
func (f filter) of(h *host) ([]node.Attachment, error) {
	list, err := h.Attachments()
	return slices.DeleteFunc(list, func(a node.Attachment) bool {
		namespace, _, _ := strings.Cut(a.Pod, "/")
		return f.namespace != "" && namespace != f.namespace || f.abandoned && a.State != audit.Abandoned
	}), err
}

func (t *tool) list(h *host, wanted filter) error {
	list, err := wanted.of(h)
	if err != nil {
		return err
	}
	return t.print(list, func(w *tabwriter.Writer) {
		for _, line := range t.listLines(h, list) {
			fmt.Fprintln(w, line)
		}
	})
}

// listLines is the list as lines that fit the terminal.
func (t *tool) listLines(h *host, list []node.Attachment) []string {
	if len(list) == 0 {
		return []string{"no attachments"}
	}
	var rows [][]string
	if t.output == "wide" {
		rows = wideRows(h, list)
	} else {
		rows = [][]string{{"POD", "NETWORK", "INTERFACE", "TYPE", "DEVICE", "STATE"}}
		for _, a := range list {
			rows = append(rows, []string{a.Holder(), a.Network, a.IfName, a.Type, a.Device, string(a.State)})
		}
	}
	width := t.width()
	lines := fit(without(rows, width, "CDI", "FILE", "CLAIM", "TYPE"), width)
	for n, a := range list {
		lines[n+1] = t.paintEnd(lines[n+1], string(a.State), colourOf(a.State))
	}
	return lines
}

// wideRows has all that there is, for -o wide.
func wideRows(h *host, list []node.Attachment) [][]string {
	rows := [][]string{{"POD", "CONTAINER", "NETWORK", "INTERFACE", "TYPE", "DEVICE", "CLAIM", "FILE", "CDI", "STATE"}}
	for _, a := range list {
		file := a.File
		if filepath.Dir(file) == filepath.Clean(h.Settings.DeviceInfoDir) {
			file = filepath.Base(file)
		}
		rows = append(rows, []string{
			a.Pod, shortID(a.ContainerID), a.Network, a.IfName, a.Type, a.Device, a.Claim, shorten(a.ContainerID, file), shorten(a.ContainerID, a.CDI), string(a.State),
		})
	}
	return rows
}

// shortID is a container's ID as people know it, the first twelve digits.
func shortID(id string) string { return id[:min(12, len(id))] }

// shorten cuts the container's ID in a name that has it whole.
func shorten(id, name string) string {
	if len(id) <= 16 { // nothing would be gained
		return name
	}
	return strings.ReplaceAll(name, id, shortID(id)+"…")
}

func colourOf(s audit.State) colour {
	switch s {
	case audit.OK:
		return green
	case audit.Adding, audit.Prepared, audit.Deleting, audit.Unknown:
		return yellow
	}
	return red
}
