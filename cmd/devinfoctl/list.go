package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/audit"
)

const listHelp = `Lists the attachments of the node, as the plugin's journal has them, and what has
become of each:

  ok            the network namespace, the device and the files are there
  adding        ADD has not ended yet, or was killed
  file missing  the device-info file or the CDI spec that ADD wrote is gone
  device gone   the device that ADD found is no longer on the node
  netns gone    the network namespace is gone, and no DEL has come, or it failed
  orphan        of an earlier boot: neither namespace nor file can be left
  corrupt       the journal's entry cannot be read
  newer format  the entry is of a newer devinfo
  unknown       it cannot be looked at: without root, or from within a container

Attachments that got no device-info file and have no delegates are not in the journal.
What is wrong with one, check explains; gc removes "netns gone" and "orphan". On a
narrow terminal columns are left out.

With --watch the list is looked at again every --interval, and drawn again when
it has changed, until SIGINT. Where the output is no terminal, each change is a line
instead; with -o json each is an object on a line, with -o yaml a document.`

const listExample = `  devinfoctl list
  devinfoctl list --watch
  devinfoctl list -o json | jq '.[] | select(.state != "ok")'
  devinfoctl --host node.txtar list`

// shortest is the least --interval: each look reads every entry.
const shortest = 100 * time.Millisecond

func listCommand(t *tool) *cobra.Command {
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "the attachments of the node, and what has become of them",
		Long:    listHelp,
		Example: listExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < shortest {
				return usage(fmt.Sprintf("give %s or more", shortest), "--interval: %s is too short", interval)
			}
			h, err := t.host()
			if err != nil {
				return err
			}
			if watch {
				return t.watch(cmd.Context(), h, interval)
			}
			return t.list(h)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on, and show changes as they come")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "with --watch, the `time` between two looks")
	return cmd
}

func (t *tool) list(h *host) error {
	list, err := h.attachments()
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
func (t *tool) listLines(h *host, list []attachment) []string {
	if len(list) == 0 {
		return []string{"no attachments in " + h.node.StateDir}
	}
	rows := [][]string{{"NETWORK", "CONTAINER", "INTERFACE", "TYPE", "DEVICE", "FILE", "CDI", "STATE"}}
	for _, a := range list {
		file := a.File
		if filepath.Dir(file) == filepath.Clean(h.node.DeviceInfoDir) {
			file = filepath.Base(file)
		}
		rows = append(rows, []string{
			a.Network, shortID(a.ContainerID), a.IfName, a.Type, a.Device, a.shorten(file), a.shorten(a.CDI), string(a.State),
		})
	}
	width := t.width()
	lines := fit(without(rows, width, "CDI", "FILE", "TYPE"), width)
	for n, a := range list {
		if state := string(a.State); a.State != audit.OK {
			line := lines[n+1]
			if cut := len(line) - len(state); cut >= 0 && line[cut:] == state {
				lines[n+1] = line[:cut] + t.paint(colourOf(a.State), state)
			}
		}
	}
	return lines
}

// shortID is a container's ID as people know it, the first twelve digits.
func shortID(id string) string { return id[:min(12, len(id))] }

// shorten cuts the container's ID in a name that has it whole.
func (a *attachment) shorten(name string) string {
	if len(a.ContainerID) <= 16 { // nothing would be gained
		return name
	}
	return strings.ReplaceAll(name, a.ContainerID, shortID(a.ContainerID)+"…")
}
