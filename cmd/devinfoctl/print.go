package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/ctl/output"
)

// print prints value in the format of -o: with table, or as JSON or YAML.
func (t *tool) print(value any, table func(w io.Writer)) error {
	if t.output == "json" || t.output == "yaml" {
		return output.Encode(t.stdout, t.output, value)
	}
	var b bytes.Buffer
	table(&b)
	_, err := t.stdout.Write(b.Bytes())
	return err
}

// say prints each text on a line with a label. It skips empty texts.
func say(w io.Writer, indent, what string, texts ...string) {
	for _, text := range texts {
		if text != "" {
			fmt.Fprintf(w, "%s%s: %s\n", indent, what, printable(text))
		}
	}
}

// printRows prints a table. The first row has the headings.
func printRows(w io.Writer, rows [][]string) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for c, cell := range row {
			row[c] = printable(cell)
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	table.Flush()
}

// printable makes a cell safe for a terminal. An empty cell becomes "-".
func printable(text string) string { return clierr.Printable(cmp.Or(text, "-")) }

func (t *tool) warn(format string, args ...any) {
	fmt.Fprintf(t.stderr, "devinfoctl: warning: %s\n", fmt.Sprintf(format, args...))
}
