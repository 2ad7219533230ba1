package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/ctl/clierr"
)

// print prints value in the format of -o: with table, or as JSON or YAML.
func (t *tool) print(value any, table func(w io.Writer)) error {
	var b bytes.Buffer
	enc, err := json.NewEncoder(&b), error(nil)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if t.output == "table" || t.output == "wide" {
		table(&b)
	} else if err = enc.Encode(value); err != nil {
		return fmt.Errorf("print as %s: %w", t.output, err)
	}
	text := b.Bytes()
	if t.output == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err = t.stdout.Write(text)
	return err
}

// say prints each text on a line with a label. It skips empty texts.
func (t *tool) say(w io.Writer, indent string, c colour, what string, texts ...string) {
	for _, text := range texts {
		if text != "" {
			fmt.Fprintf(w, "%s%s: %s\n", indent, t.paint(c, what), printable(text))
		}
	}
}

// printRows prints a table. The first row has the headings. last has the colours of the last cells of the
// other rows.
func (t *tool) printRows(w io.Writer, rows [][]string, last ...colour) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for n, row := range rows {
		for c, cell := range row {
			row[c] = printable(cell)
		}
		if end := len(row) - 1; n > 0 && n <= len(last) {
			row[end] = t.paint(last[n-1], row[end])
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	table.Flush()
}

// printable makes a cell safe for a terminal. An empty cell becomes "-".
func printable(text string) string { return clierr.Printable(cmp.Or(text, "-")) }

// A colour is an ANSI attribute.
type colour string

const (
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
)

// paint colours a text on a terminal. The text must be clear without colour.
func (t *tool) paint(c colour, text string) string {
	file, ok := t.stdout.(*os.File)
	if !ok || text == "" || c == "" || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	if _, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS); err != nil { // not a terminal
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

func (t *tool) warn(format string, args ...any) {
	fmt.Fprintf(t.stderr, "devinfoctl: warning: %s\n", clierr.Lines(fmt.Sprintf(format, args...)))
}
