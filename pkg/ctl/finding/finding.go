// Package finding has the type of the tables of findings. A command makes its findings from the rows of a table, and tests
// compare the rows with docs/troubleshooting.md.
package finding

import (
	"slices"
	"strings"
)

type Level string

// The levels. Only Error means that something does not work.
const (
	OK      Level = "ok"
	Info    Level = "info"
	Unknown Level = "unknown" // it could not be checked
	Warning Level = "warning"
	Error   Level = "error"
)

// A Rule is a kind of finding, a row of a table.
type Rule struct {
	Name    string
	Level   Level
	Reads   string // the facts that tell
	Text    string // {name} stands for what was found
	Remedy  string // "" = there is nothing to do
	Section string // anchor in docs/troubleshooting.md; "" = nobody looks for it there
	Says    string // part of the text, which the section has as a symptom; "" = the section explains all such findings
}

// Row returns a rule with these fields.
func Row(name string, level Level, reads, text, remedy, section, says string) Rule {
	return Rule{name, level, reads, text, remedy, section, says}
}

// String returns the text with the remedy.
func (r Rule) String() string { return strings.TrimSuffix(r.Text+": "+r.Remedy, ": ") }

type Table []Rule

// Of returns the rule of that name with values in its text and remedy. values are names, each with its value.
func (t Table) Of(name string, values ...string) Rule {
	r := t[slices.IndexFunc(t, func(r Rule) bool { return r.Name == name })]
	for n := 0; n < len(values); n += 2 {
		values[n] = "{" + values[n] + "}"
	}
	put := strings.NewReplacer(values...)
	r.Text, r.Remedy = put.Replace(r.Text), put.Replace(r.Remedy)
	return r
}
