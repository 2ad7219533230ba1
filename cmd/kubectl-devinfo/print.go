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
