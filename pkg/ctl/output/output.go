// Package output prints what commands have found. devinfo-agent does not import it, because of YAML.
package output

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/core/clierr"
)

// Encode prints a value as "json" or "yaml".
func Encode(to io.Writer, format string, value any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(value)
	text := b.Bytes()
	if err == nil && format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", format, err)
	}
	_, err = to.Write(text)
	return err
}

// Rows prints a table, whose first row has the headings. An empty cell becomes "-".
func Rows(to io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for c, cell := range row {
			row[c] = Cell(cell)
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// Cell makes a text safe for a terminal. An empty one becomes "-".
func Cell(text string) string { return clierr.Printable(cmp.Or(text, "-")) }
