package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/ctl/cluster"
	"devinfo-cni.io/pkg/ctl/output"
)

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
		t.paragraphs(list)
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

type column struct {
	name  string
	wide  bool
	value func(a *cluster.Network) string
}

// columns are the columns of the table. The first is for --all-namespaces only, and the wide ones are for -o
// wide only, except that of a problem if there is one.
var columns = []column{
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
	problems := slices.ContainsFunc(list, func(a cluster.Network) bool { return a.Problem != "" })
	shown := slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return c.name == "Namespace" && !t.allNamespaces || c.wide && t.output != "wide" && !(c.name == "Problem" && problems)
	})
	w, cells := printers.GetNewTabWriter(t.Out), make([]string, len(shown))
	for n := range shown {
		cells[n] = strings.ToUpper(shown[n].name)
	}
	if !t.noHeaders {
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	for n := range list {
		for c := range shown {
			cells[c] = output.Cell(shown[c].value(&list[n]))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// paragraphs prints each attachment as a paragraph with the columns of the table and the device information.
func (t *tool) paragraphs(list []cluster.Network) {
	w := printers.GetNewTabWriter(t.Out)
	defer w.Flush()
	for n := range list {
		a := &list[n]
		if n > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\n", output.Cell(a.Interface))
		for _, c := range columns[2:] { // without namespace and pod, which the user has named
			if value := c.value(a); value != "" && c.name != "Interface" {
				fmt.Fprintf(w, "  %s\t%s\n", strings.ToLower(c.name), clierr.Printable(value))
			}
		}
		for _, held := range a.Withheld {
			fmt.Fprintf(w, "  withheld\t%s\n", clierr.Printable(held.Device+": "+held.Why+"; "+held.Remedy))
		}
		if len(a.DeviceInfo) > 0 {
			var text bytes.Buffer
			if json.Indent(&text, a.DeviceInfo, "    ", "  ") == nil {
				fmt.Fprintf(w, "  device information:\n    %s\n", text.String())
			}
		}
	}
}
