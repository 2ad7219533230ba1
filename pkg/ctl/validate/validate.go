// Package validate checks texts that people and other programs wrote against the formats that
// devinfo reads and writes: device-info files (Device Information Specification 1.1.0,
// section 3), the network-status annotation of a pod (section 6, and the network custom
// resource standard of the same group), CNI configurations that contain our plugin, and DRA
// parameters. It reports everything that is wrong, each with path, value and rule.
//
// Bytes in, values out; [Checker] asks what is installed on the node.
// A program that only wants a good device-info file calls devinfo.ReadFile.
package validate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/ctl/remedy"
)

// Limit is the size of the largest text that is read, in bytes: more than etcd stores for
// one object.
const Limit = 4 << 20

// Finding is one thing that is not as it should be.
type Finding struct {
	Path    string `json:"path"`            // where, as a JSON path: "$.plugins[1].deviceInfo"
	Value   string `json:"value,omitempty"` // what is there, as JSON; empty when the key is missing
	Rule    string `json:"rule"`            // what should be there
	Warning bool   `json:"warning,omitempty"`

	// Where the value stands in the text, from 1, or what it is missing from; 0 = not known.
	// A column is a character.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
}

// String is the finding on one line, without its place.
func (f Finding) String() string {
	if f.Path == "$" && f.Value == "" {
		return f.Rule
	}
	return f.Path + ": " + cmp.Or(f.Value, "missing") + ": " + f.Rule
}

// Report is what a check has found.
type Report struct {
	Kind     Kind      `json:"kind"`
	Guessed  string    `json:"guessed,omitempty"` // what the kind was recognized by; "" = the caller gave it
	Skipped  string    `json:"skipped,omitempty"` // why nothing is checked; only a kind that was guessed is skipped
	Findings []Finding `json:"findings"`
}

// Errors counts the findings that are not warnings.
func (r *Report) Errors() (n int) {
	for _, f := range r.Findings {
		if !f.Warning {
			n++
		}
	}
	return n
}

// Plugin is the type by which configurations name our plugin.
const Plugin = "devinfo"

// Checker checks texts.
type Checker struct {
	// Find looks for a plugin in CNI_PATH; nil = there is nowhere to look.
	Find func(plugin string) error

	// Versions returns the CNI versions that a plugin of the node supports, none if they are
	// unknown; nil = there is no node to ask.
	Versions func(plugin string) []string

	// ClaimTypes are the plugins that the nodes let claims name, as cni-dra-driver's
	// --allow-claim-config; nil = that is unknown.
	ClaimTypes []string

	// Classes are the DeviceClasses that claims name; nil = those of the text, see CheckAll.
	Classes Classes
}

// Check checks a text, JSON or YAML, of a kind; "" = recognize it. It fails only with
// ErrKind: a text that is neither JSON nor YAML is a finding.
func (c Checker) Check(text []byte, kind Kind) (*Report, error) {
	return c.check(document(text, 0), kind)
}

func (c Checker) check(p part, kind Kind) (*Report, error) {
	r := &Report{Kind: kind, Findings: []Finding{}}
	data := p.data
	if p.err != nil {
		r.Findings = append(r.Findings, unreadable("$", nil, p.err))
		return r, nil
	}
	if kind == "" {
		if r.Kind, r.Guessed = guess(data); r.Kind == "" {
			return nil, ErrKind
		}
	}
	s := &sheet{found: r.Findings, guessed: kind == ""}
	s.repeatedKeys("$", data)
	switch r.Kind {
	case DeviceInfo:
		s.deviceInfo("$", data)
	case NetworkStatus:
		s.networkStatusIn(data)
	case CNIConfig:
		c.configIn(s, data)
	case DRA:
		c.draIn(s, data)
	}
	p.place(s.found)
	r.Findings, r.Skipped = s.found, s.skipped
	return r, nil
}

// unreadable is what decode says of a text, with the line.
func unreadable(path string, value json.RawMessage, err error) Finding {
	f := Finding{Path: path, Value: show(value), Rule: err.Error()}
	var syntax *syntaxError
	if errors.As(err, &syntax) {
		f.Line = syntax.line
	}
	return f
}

// sheet collects findings.
type sheet struct {
	found   []Finding
	guessed bool   // the kind
	skipped string // why nothing is checked
}

// none says that a text has nothing to check: where its kind was guessed, that is no error.
func (s *sheet) none(path string, value json.RawMessage, rule, why string) {
	if s.guessed {
		s.skipped = why
	} else {
		s.wrong(path, value, "%s", rule)
	}
}

func (s *sheet) wrong(path string, value json.RawMessage, rule string, args ...any) {
	s.found = append(s.found, Finding{Path: path, Value: show(value), Rule: fmt.Sprintf(rule, args...)})
}

func (s *sheet) warn(path string, value json.RawMessage, rule string, args ...any) {
	s.found = append(s.found, Finding{Path: path, Value: show(value), Rule: fmt.Sprintf(rule, args...), Warning: true})
}

// unknown warns of an object's unknown keys.
func (s *sheet) unknown(path string, object map[string]json.RawMessage, known []string) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(known, key) {
			s.warn(at(path, key), object[key], "the key is not known; the nearest known one is %q", config.Nearest(key, known))
		}
	}
}

// at is the path of a key of the object at path.
func at(path, key string) string {
	plain := key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_'
	})
	if plain {
		return path + "." + key
	}
	return path + "[" + show(quote(key)) + "]"
}

func quote(s string) json.RawMessage {
	raw, _ := json.Marshal(s) // a string always encodes
	return raw
}

// text is the string that raw holds; "" if it is not a string.
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
