package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/ctl/cluster"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/output"
)

func (t *tool) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"pods"},
		Short:   "the attachments of all pods of a namespace (the default command)",
		Example: "  kubectl devinfo list -n shop\n  kubectl devinfo list -A --node n1 -o wide\n" +
			"  kubectl devinfo list -l app=dpdk -o jsonpath='{.attachments[*].device}'",
		RunE: t.list,
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
	if len(list) == 0 && !t.structured() {
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
not in the API, and for the device of another interface of the node, also by its altname.

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
	if len(found) == 0 && t.node != "" {
		found = t.byInterface(cmd.Context(), list, args[0])
	}
	if unclear := problems(list); len(unclear) > 0 && t.output == "" {
		t.note("a network of %s has no known device; kubectl devinfo pod NAME shows the problem", clierr.Few(unclear, shown))
	}
	t.allNamespaces = true // the table needs the column of namespaces
	switch {
	case len(found) == 0 && t.partial:
		return clierr.For(fmt.Errorf("no pod among the queried ones has %s", args[0]), cmp.Or(view.Misspelt(args[0]), "query the node that may have it with --node NODE"))
	case len(found) == 0 && view.Misspelt(args[0]) != "":
		return clierr.Misuse(view.Misspelt(args[0]), "%s: no device has such an address", args[0])
	case len(found) == 0:
		return t.none("No pod has %s, except perhaps a pod whose network does not use devinfo.\n", args[0])
	}
	return t.print(found)
}

// none prints a message that there is nothing to show. In a format for programs it also prints an empty list.
func (t *tool) none(format string, args ...any) error {
	fmt.Fprintf(t.ErrOut, format, args...)
	if t.structured() {
		return cmp.Or[error](t.print([]cluster.Network{}), clierr.ErrFound)
	}
	return clierr.ErrFound
}

func (t *tool) podCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pod NAME",
		Short: "show the attachments of one pod, with their complete device information",
		Example: "  kubectl devinfo pod dpdk-0 -n shop\n  kubectl devinfo pod dpdk-0 -o jsonpath='{.attachments[0].device}'\n" +
			"  kubectl devinfo holder 03:00.5 --node n1 -o name | xargs kubectl devinfo pod",
		Args: commandline.Args(1, "NAME"),
		RunE: t.pod,

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
	joined := cluster.View{Waiting: true}
	joined.Pod(pod)
	list, err := t.attachmentsOf(cmd.Context(), &joined, namespace, pod.Spec.NodeName)
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
	cmd.Flags().VarP((*format)(t), "output", "o", "wide, json, yaml, name, jsonpath=TEMPLATE or go-template=TEMPLATE, as for kubectl get")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(slices.Concat(fixed, []string{"jsonpath=", "go-template="}), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	t.agentFlags(cmd)
	cmd.Flags().BoolVar(&t.noHeaders, "no-headers", false, "leave the headers out")
}

// fixed are the formats without a template.
var fixed = []string{"wide", "json", "yaml", "name"}

// format is the flag -o of a tool.
type format tool

func (f *format) String() string { return f.output }
func (*format) Type() string     { return "format" }

func (f *format) Set(value string) (err error) {
	if f.output = value; slices.Contains(fixed, value) {
		return nil
	}
	f.template, err = genericclioptions.NewKubeTemplatePrintFlags().ToPrinter(value)
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return clierr.Misuse("give one of "+strings.Join(fixed, ", ")+", jsonpath=TEMPLATE, go-template=TEMPLATE", "--output: unknown value %q", value)
	} else if err != nil {
		return clierr.Misuse("kubectl get --help explains the templates", "--output: %w", err)
	}
	return nil
}

// structured reports whether the output is for a program, which gets an empty list too.
func (t *tool) structured() bool {
	return t.output == "json" || t.output == "yaml" || t.template != nil
}

// print returns [clierr.ErrBlind] after the output if a node did not answer.
func (t *tool) print(list []cluster.Network) (err error) {
	switch t.output {
	case "json", "yaml":
		err = output.Encode(t.Out, t.output, map[string]any{"attachments": list})
	case "name":
		for n, a := range list {
			if n == 0 || a.Pod != list[n-1].Pod || a.Namespace != list[n-1].Namespace {
				fmt.Fprintln(t.Out, "pod/"+clierr.Printable(a.Pod))
			}
		}
	case "paragraphs":
		err = t.paragraphs(list)
	default:
		if t.template == nil {
			err = t.table(list)
			break
		}
		object := map[string]any{}
		text, failed := json.Marshal(map[string]any{"attachments": list})
		if err = cmp.Or(failed, json.Unmarshal(text, &object)); err == nil {
			err = t.template.PrintObj(&unstructured.Unstructured{Object: object}, t.Out)
		}
	}
	if err == nil && t.silent {
		return clierr.ErrBlind
	}
	return err
}

// columns are the columns of the table. The first is for --all-namespaces only, and the wide ones are for -o
// wide only, except that of a problem if there is one.
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
	{problemColumn, true, func(a *cluster.Network) string { return a.Problem }},
}

const problemColumn = "Problem"

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
		if c.wide && (c.name != problemColumn || !slices.ContainsFunc(list, func(a cluster.Network) bool { return a.Problem != "" })) {
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
