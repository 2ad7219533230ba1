package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/ctl/remedy"
)

// print prints value as -o says: by table, or as JSON or YAML of the same value.
// Cells of the table end in a tab.
func (t *tool) print(value any, table func(w *tabwriter.Writer)) error {
	if t.output == "table" || t.output == "wide" {
		w := tabwriter.NewWriter(t.stdout, 0, 8, 2, ' ', tabwriter.StripEscape)
		table(w)
		return w.Flush()
	}
	data, err := encode(value, t.output)
	if err != nil {
		return err
	}
	_, err = t.stdout.Write(data)
	return err
}

// encode gives value as "json" or "yaml", which differ in the syntax only.
func encode(value any, format string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(value); err != nil {
		return nil, fmt.Errorf("print as %s: %w", format, err)
	}
	if format == "json" {
		return b.Bytes(), nil
	}
	return yaml.JSONToYAML(b.Bytes())
}

// A colour is an ANSI attribute.
type colour string

const (
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
)

// paint colours a word that says the same without colour, and only on a terminal.
// In a table, paint the last cell of a line only: a tabwriter counts the colour as
// letters.
func (t *tool) paint(c colour, text string) string {
	if text == "" || c == "" || !isTerminal(t.stdout) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// paintEnd colours the word that a line ends in, unless it was cut.
func (t *tool) paintEnd(line, word string, c colour) string {
	rest, whole := strings.CutSuffix(line, word)
	if !whole || c == "" {
		return line
	}
	return rest + t.paint(c, word)
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// warn prints to standard error what does not stop the command.
func (t *tool) warn(format string, args ...any) {
	fmt.Fprintf(t.stderr, "devinfoctl: warning: %s\n", remedy.Lines(fmt.Sprintf(format, args...)))
}
