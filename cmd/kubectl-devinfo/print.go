package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/cluster"
)

func (t *tool) printFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&t.output, "output", "o", "", "wide, json or yaml")
	cmd.Flags().BoolVar(&t.noHeaders, "no-headers", false, "leave the headers out")
}

// print shows attachments as -o says.
func (t *tool) print(list []cluster.Attachment) error {
	switch t.output {
	case "", "wide":
		return t.table(list)
	case "json", "yaml":
		text, err := json.MarshalIndent(map[string]any{"attachments": list}, "", "    ")
		if err == nil && t.output == "yaml" {
			text, err = yaml.JSONToYAML(text)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(t.Out, string(bytes.TrimSpace(text)))
		return err
	}
	return fmt.Errorf("--output: unknown value %q: give wide, json or yaml", t.output)
}

// columns are those of the table; a wide one has all.
var columns = []struct {
	name  string
	wide  bool
	value func(a *cluster.Attachment) string
}{
	{"Pod", false, func(a *cluster.Attachment) string { return a.Pod }},
	{"Network", false, func(a *cluster.Attachment) string { return a.Network }},
	{"Interface", false, func(a *cluster.Attachment) string { return a.Interface }},
	{"Type", false, func(a *cluster.Attachment) string { return a.Type }},
	{"Device", false, func(a *cluster.Attachment) string { return a.Device }},
	{"PF", false, func(a *cluster.Attachment) string { return a.PF }},
	{"Representor", false, func(a *cluster.Attachment) string { return a.Representor }},
	{"RDMA", false, func(a *cluster.Attachment) string { return a.RDMA }},
	{"Claim", false, func(a *cluster.Attachment) string { return a.Claim }},
	{"Node", false, func(a *cluster.Attachment) string { return a.Node }},
	{"MAC", true, func(a *cluster.Attachment) string { return a.MAC }},
	{"IPs", true, func(a *cluster.Attachment) string { return strings.Join(a.IPs, ",") }},
	{"Driver", true, func(a *cluster.Attachment) string { return a.Driver }},
	{"Problem", true, func(a *cluster.Attachment) string { return a.Problem }},
}

func (t *tool) table(list []cluster.Attachment) error {
	table := &metav1.Table{}
	for _, c := range columns {
		column := metav1.TableColumnDefinition{Name: c.name, Type: "string"}
		if c.wide {
			column.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, column)
	}
	if t.allNamespaces {
		table.ColumnDefinitions = append([]metav1.TableColumnDefinition{{Name: "Namespace", Type: "string"}}, table.ColumnDefinitions...)
	}
	for n := range list {
		var cells []any
		if t.allNamespaces {
			cells = append(cells, list[n].Namespace)
		}
		for _, c := range columns {
			cells = append(cells, orDash(c.value(&list[n])))
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	printer := printers.NewTablePrinter(printers.PrintOptions{Wide: t.output == "wide", NoHeaders: t.noHeaders})
	return printer.PrintObj(table, t.Out)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// details shows each attachment as a paragraph: what the table has, and every key of the
// device information.
func (t *tool) details(list []cluster.Attachment) error {
	w := printers.GetNewTabWriter(t.Out)
	defer w.Flush()
	for n := range list {
		a := &list[n]
		if n > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\n", orDash(printers.EscapeTerminal(a.Interface)))
		for _, c := range columns {
			if value := c.value(a); value != "" && c.name != "Interface" && c.name != "Pod" {
				fmt.Fprintf(w, "  %s\t%s\n", strings.ToLower(c.name), printers.EscapeTerminal(value))
			}
		}
		if len(a.DeviceInfo) > 0 {
			var text bytes.Buffer
			if json.Indent(&text, a.DeviceInfo, "    ", "  ") == nil {
				fmt.Fprintf(w, "  device information:\n    %s\n", printers.EscapeTerminal(text.String()))
			}
		}
	}
	return nil
}
