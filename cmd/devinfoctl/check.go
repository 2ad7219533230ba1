package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/ctl/output"
)

const checkHelp = `Compares each attachment with its state after ADD, as the plugin's CHECK does. For each fact it
shows the value in the journal, in the device-info file and in the kernel, and the source of the
kernel's value.

The argument selects the attachments of a pod (NAME or NAMESPACE/NAME), a network, a container or
a device, or one attachment: NETWORK/CONTAINER/INTERFACE, NETWORK/CONTAINER or
NAMESPACE/POD/INTERFACE. A prefix of a container ID suffices. Without an argument it checks all of
them. For attachments of cni-dra-driver, check also shows the error of a failed DEL.

The verdicts are
  same          journal, file and kernel agree
  changed       an optional fact has changed since ADD: CHECK warns
  declared      the kernel has another value, and the configuration overrides it
  differs       the device or the interface was replaced: CHECK fails
  gone          existed at ADD and no longer exists: CHECK fails
  not stated    the kernel has no value; the fact was declared, or came from an earlier file
  not recorded  the file has no value
  unknown       cannot be read: not root, or in a container

CHECK fails if check shows a problem. It also fails for an ADD that was killed. check does not wait
for an ADD that may still run, and shows no problem for it.

"not compared" lists the comparisons that CHECK makes and check does not.

Exits with 1 if an attachment has a problem, else with 3 if part of one could not be read.`

func checkCommand(t *tool) *cobra.Command {
	return &cobra.Command{
		Use:   "check [POD|NETWORK|CONTAINER|ATTACHMENT|DEVICE]",
		Short: "compare attachments with their state after ADD, and explain differences",
		Long:  checkHelp,
		Example: `  devinfoctl check
  devinfoctl check shop/dpdk-0
  devinfoctl check sriov-net
  devinfoctl check 3f1c2d
  devinfoctl check sriov-net/3f1c2d/net1 -o json
  devinfoctl --capture node.txtar check`,
		Args: commandline.Args(0, "ATTACHMENT"), ValidArgsFunction: t.complete(true),
		RunE: t.onHost(t.check),
	}
}

func (t *tool) check(_ *cobra.Command, h *host, args []string) error {
	list, err := h.Recorded()
	if err == nil && len(args) > 0 {
		list, err = h.Choose(list, args[0])
	}
	if err != nil {
		return err
	}
	h.Judge(list, true)
	verdicts := make([]*node.Comparison, len(list))
	for n, a := range list {
		verdicts[n] = a.Verdict
	}
	found := slices.ContainsFunc(list, func(a node.Attachment) bool { return a.Verdict.Problem != "" && !isUnknown(a) })
	err = t.print(map[string]any{"attachments": verdicts}, found, func(w *bytes.Buffer) {
		for n, a := range list {
			if n > 0 {
				fmt.Fprintln(w)
			}
			comparisonTable(w, a)
		}
		if len(list) == 0 {
			fmt.Fprintln(w, "no attachments")
		}
	})
	if err == nil && slices.ContainsFunc(list, isUnknown) {
		return h.unseen("check: some attachments could not be read completely")
	}
	return err
}

func comparisonTable(w io.Writer, a node.Attachment) {
	name, c := a.Short(), a.Verdict
	if a.Pod != "" {
		name = "pod " + a.PodName() + ": " + name
	}
	fmt.Fprintf(w, "%s: %s\n", output.Cell(name), a.State)
	say(w, "  ", "file", c.File)
	if len(c.Facts) > 0 {
		rows := [][]string{{"  FACT", "JOURNAL", "FILE", "NOW", "SOURCE", "VERDICT"}}
		for _, f := range c.Facts {
			rows = append(rows, []string{"  " + f.Fact, f.Journal, f.File, f.Now, f.Source, string(f.Verdict)})
		}
		_ = output.Rows(w, rows)
	}
	say(w, "  ", "problem", c.Problem)
	say(w, "  ", "remedy", c.Remedy)
	say(w, "  ", "reason", c.Reason)
	say(w, "  ", "warning", c.Warnings...)
	say(w, "  ", "not compared", c.NotCompared...)
}
