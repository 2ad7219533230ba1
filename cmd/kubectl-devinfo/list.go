package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/ctl/cluster"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/output"
)

func (t *tool) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"pods"},
		Short:   "the attachments of all pods of a namespace (the default command)",
		RunE:    t.list,
	}
	t.listFlags(cmd)
	return cmd
}

func (t *tool) listFlags(cmd *cobra.Command) {
	t.printFlags(cmd)
	cmd.Flags().BoolVarP(&t.allNamespaces, "all-namespaces", "A", false, "all namespaces")
	cmd.Flags().StringVarP(&t.selector, "selector", "l", "", "labels of pods, such as app=dpdk")
	t.nodeFlag(cmd, "the pods of this node only")
}

func (t *tool) list(cmd *cobra.Command, _ []string) error {
	namespace, err := t.namespace()
	if err != nil {
		return err
	}
	list, err := t.attachments(cmd.Context(), namespace, "")
	if err != nil {
		return err
	}
	if len(list) == 0 && t.output != "json" && t.output != "yaml" {
		fmt.Fprintln(t.ErrOut, "No attachments found: no pod has a network-status with secondary networks, or a claim with network data.")
		return nil
	}
	return t.print(list)
}

// namespace returns kubectl's namespace, or "" for all.
func (t *tool) namespace() (string, error) {
	if t.allNamespaces {
		return metav1.NamespaceAll, nil
	}
	namespace, _, err := t.config.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

func (t *tool) holderCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "holder DEVICE",
		Short: "find the pods that have a device: a PCI address, representor, RDMA or vDPA device, socket, MAC or IP",
		Long: `Lists the attachments of all namespaces that have a device. DEVICE is a PCI address (the address of a PF
also finds its VFs), a representor, an RDMA or vDPA device, a socket, a MAC or IP address. Use --node with a PCI
address, because most nodes have a device with that address. Only that node is queried for devices that are
not in the API.

Exit code 1: no pod has the device. Exit code 3: no pod has it, and some nodes were not queried.`,
		Example: "  kubectl devinfo holder 03:00.5 --node n1\n  kubectl devinfo holder eth4",
		Args:    commandline.Args(1, "DEVICE"),
		RunE:    t.holder,
	}
	t.printFlags(cmd)
	t.nodeFlag(cmd, "on this node only")
	return cmd
}

func (t *tool) holder(cmd *cobra.Command, args []string) error {
	list, err := t.attachments(cmd.Context(), metav1.NamespaceAll, t.node)
	if err != nil {
		return err
	}
	found := cluster.Holders(list, args[0])
	t.allNamespaces = true // the table needs the column of namespaces
	switch {
	case len(found) == 0 && t.partial:
		return clierr.For(fmt.Errorf("no pod among the queried ones has %s", args[0]), "query the node that may have it with --node NODE")
	case len(found) == 0:
		return t.none("No pod has %s, except perhaps a pod whose network does not use devinfo.\n", args[0])
	}
	return t.print(found)
}

// none prints a message that there is nothing to show. With -o json or yaml it also prints an empty list.
func (t *tool) none(format string, args ...any) error {
	fmt.Fprintf(t.ErrOut, format, args...)
	if t.output == "json" || t.output == "yaml" {
		return cmp.Or[error](t.print([]cluster.Network{}), clierr.ErrFound)
	}
	return clierr.ErrFound
}

func (t *tool) podCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pod NAME",
		Short: "show the attachments of one pod, with their complete device information",
		Args:  commandline.Args(1, "NAME"),
		RunE:  t.pod,

		ValidArgsFunction: t.complete("pods", false),
	}
	t.printFlags(cmd)
	return cmd
}

func (t *tool) pod(cmd *cobra.Command, args []string) error {
	namespace, err := t.namespace()
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(args[0], "pod/")
	pod, err := t.api.CoreV1().Pods(namespace).Get(cmd.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if cluster.Ended(pod) {
		return t.none("Pod %s has ended (%s), so it has no attachments.\n", name, pod.Status.Phase)
	}
	var view cluster.View
	view.Pod(pod)
	list, err := t.attachmentsOf(cmd.Context(), &view, namespace, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return t.none("Pod %s has no attachments: no network-status with secondary networks, and no claim with network data.\n", name)
	}
	t.output = cmp.Or(t.output, "paragraphs")
	return t.print(list)
}

func (t *tool) printFlags(cmd *cobra.Command) {
	commandline.Choice(cmd, cmd.Flags(), &t.output, "output", "o", "", "wide, json or yaml", "wide", "json", "yaml")
	t.agentFlags(cmd)
	cmd.Flags().BoolVar(&t.noHeaders, "no-headers", false, "leave the headers out")
}

// print returns [clierr.ErrBlind] after the output if a node did not answer.
func (t *tool) print(list []cluster.Network) (err error) {
	switch t.output {
	case "json", "yaml":
		err = output.Encode(t.Out, t.output, map[string]any{"attachments": list})
	case "paragraphs":
		err = t.paragraphs(list)
	default:
		err = t.table(list)
	}
	if err == nil && t.silent {
		return clierr.ErrBlind
	}
	return err
}

// columns are the columns of the table. The first is for --all-namespaces only, and the wide ones are for -o
// wide only.
var columns = []struct {
	name  string
	wide  bool
	value func(a *cluster.Network) string
}{
	{"Namespace", false, func(a *cluster.Network) string { return a.Namespace }},
	{"Pod", false, func(a *cluster.Network) string { return a.Pod }},
	{"Network", false, func(a *cluster.Network) string { return a.Network }},
	{"Interface", false, func(a *cluster.Network) string { return a.Interface }},
	{"Type", false, func(a *cluster.Network) string { return known(a, a.Type) }},
	{"Device", false, func(a *cluster.Network) string { return known(a, a.Device.Device) }},
	{"PF", false, func(a *cluster.Network) string { return known(a, a.PF) }},
	{"Representor", false, func(a *cluster.Network) string { return known(a, a.Representor) }},
	{"RDMA", false, func(a *cluster.Network) string { return known(a, a.RDMA) }},
	{"Claim", false, func(a *cluster.Network) string { return a.Claim }},
	{"Node", false, func(a *cluster.Network) string { return a.Node }},
	{"MAC", true, func(a *cluster.Network) string { return a.MAC }},
	{"IPs", true, func(a *cluster.Network) string { return strings.Join(a.IPs, ",") }},
	{"Driver", true, func(a *cluster.Network) string { return a.Driver }},
	{"Problem", true, func(a *cluster.Network) string { return a.Problem }},
}

// known returns a fact about a device, or "?" if the node was not queried.
func known(a *cluster.Network, fact string) string {
	if a.NotAsked {
		return "?"
	}
	return fact
}

func (t *tool) table(list []cluster.Network) error {
	table, columns := &metav1.Table{}, columns
	if !t.allNamespaces {
		columns = columns[1:]
	}
	for _, c := range columns {
		column := metav1.TableColumnDefinition{Name: c.name, Type: "string"}
		if c.wide {
			column.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, column)
	}
	for n := range list {
		var cells []any
		for _, c := range columns {
			cells = append(cells, clierr.Printable(cmp.Or(c.value(&list[n]), "-")))
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	w := printers.GetNewTabWriter(t.Out)
	options := printers.PrintOptions{Wide: t.output == "wide", NoHeaders: t.noHeaders}
	return cmp.Or(printers.NewTablePrinter(options).PrintObj(table, w), w.Flush())
}

// paragraphs prints each attachment as a paragraph with the columns of the table and the device information.
func (t *tool) paragraphs(list []cluster.Network) error {
	w := printers.GetNewTabWriter(t.Out)
	defer w.Flush()
	for n := range list {
		a := &list[n]
		if n > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\n", clierr.Printable(cmp.Or(a.Interface, "-")))
		for _, c := range columns[2:] { // without namespace and pod, which the user has named
			if value := c.value(a); value != "" && c.name != "Interface" {
				fmt.Fprintf(w, "  %s\t%s\n", strings.ToLower(c.name), clierr.Printable(value))
			}
		}
		if len(a.DeviceInfo) > 0 {
			var text bytes.Buffer
			if json.Indent(&text, a.DeviceInfo, "    ", "  ") == nil {
				fmt.Fprintf(w, "  device information:\n    %s\n", text.String())
			}
		}
	}
	return nil
}
