package validate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"devinfo-cni.io/pkg/ctl/remedy"
)

// Finding is an error in a document, or a warning.
type Finding struct {
	Path    string `json:"path,omitempty"`  // "spec.config.plugins[1].deviceInfo.type"; "" = the document
	Value   string `json:"value,omitempty"` // the value as JSON; "" = it is missing, or the rule quotes it
	Rule    string `json:"rule"`            // the rule that the value breaks
	Warning bool   `json:"warning,omitempty"`
	Line    int    `json:"line,omitempty"` // of the value in its file, or of the nearest one around it, from 1; 0 = unknown
}

// String returns the finding on one line, without the line number.
func (f Finding) String() string {
	line := f.Rule
	for _, part := range []string{f.Value, f.Path} {
		if part != "" {
			line = part + ": " + line
		}
	}
	return line
}

// Errors returns the number of findings that are not warnings.
func (d *Document) Errors() (n int) {
	for _, f := range d.Findings {
		if !f.Warning {
			n++
		}
	}
	return n
}

// add adds a finding, whose path may begin with a dot, and sets its line.
func (d *Document) add(f Finding) {
	f.Path = strings.TrimPrefix(f.Path, ".")
	if d.node != nil {
		f.Line = lineOf(d.node, strings.Trim(d.path+"."+f.Path, "."), d.node.Line)
	}
	f.Path, f.Rule = remedy.Printable(f.Path), remedy.Printable(f.Rule)
	d.Findings = append(d.Findings, f)
}

func (d *Document) wrong(path string, value json.RawMessage, rule string, args ...any) {
	d.add(Finding{Path: path, Value: show(value), Rule: fmt.Sprintf(rule, args...)})
}

func (d *Document) warn(path string, value json.RawMessage, rule string, args ...any) {
	d.add(Finding{Path: path, Value: show(value), Rule: fmt.Sprintf(rule, args...), Warning: true})
}

func (d *Document) unknownKey(path string, value json.RawMessage, nearest string) {
	d.warn(path, value, "the key is not known; the nearest known one is %q", nearest)
}

func quote(s string) json.RawMessage {
	raw, _ := json.Marshal(s) // a string always encodes
	return raw
}

// text returns the string that raw holds; "" = it holds none.
func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}

// longest is the number of runes of a value that a finding quotes.
const longest = 120

// show returns JSON on one line, safe for a terminal.
func show(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return ""
	}
	shown := []rune(remedy.Printable(b.String()))
	if len(shown) > longest {
		return string(shown[:longest]) + "…"
	}
	return string(shown)
}
