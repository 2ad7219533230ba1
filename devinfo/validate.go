package devinfo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Violation is one thing that is not as the specification says.
type Violation struct {
	Path    string // where, as a JSON path: "$.pci.pci-address"
	Value   string // what is there: a string in quotes, anything else as JSON; empty when the key is missing
	Rule    string // what should be there, ending in the section: `must be "vhost" or "virtio" (Device Information Specification, 3.1.4.2)`
	Warning bool   // a reader should not reject the file for it
}

// String gives one line: `$.vdpa.driver: "vfio": must be "vhost" or "virtio" (section 3.1.4.2)`.
func (v Violation) String() string {
	const longest = 120
	value := v.Value
	if value == "" {
		value = "missing"
	}
	if r := []rune(value); len(r) > longest {
		value = string(r[:longest]) + "..."
	}
	return v.Path + ": " + value + ": " + v.Rule
}

// Violations are all violations of one device-info map, in the specification's
// order.
type Violations []Violation

// Errors are those that are not warnings.
func (v Violations) Errors() Violations { return v.filter(false) }

// Warnings are those that are only warnings.
func (v Violations) Warnings() Violations { return v.filter(true) }

func (v Violations) filter(warning bool) (out Violations) {
	for _, one := range v {
		if one.Warning == warning {
			out = append(out, one)
		}
	}
	return out
}

// Err is nil when there are at most warnings, else an [*InvalidError].
func (v Violations) Err() error {
	if bad := v.Errors(); len(bad) > 0 {
		return &InvalidError{Violations: bad}
	}
	return nil
}

// InvalidError says that device information breaks the specification.
type InvalidError struct {
	Path       string     // the file, if it came from one
	Violations Violations // at least one, no warnings
}

func (e *InvalidError) Error() string {
	var lines []string
	for _, v := range e.Violations {
		lines = append(lines, v.String())
	}
	text := "invalid device-info: " + strings.Join(lines, "; ")
	if e.Path != "" {
		text = e.Path + ": " + text
	}
	return text
}

// Validate checks a whole device-info map as a reader should (section 3): what
// the type requires must be there, and each value must be of the right JSON type
// and form. Only warnings come from relative socket paths, from characters that
// readers mangle, from PCI domains of more than four digits, from versions newer
// than [SpecVersion], and from keys missing in a map that is not the type's.
func (i *Info) Validate() Violations { return i.validate(false) }

// ValidateDeclared checks an object in a configuration, which may be a part of a
// device-info map: nothing is required in it, but what is there is held to the
// strict rules. Of Validate's warnings only those for wide PCI domains and newer
// versions remain warnings.
func (i *Info) ValidateDeclared() Violations { return i.validate(true) }

func (i *Info) validate(declared bool) Violations {
	t := i.table()
	v := validator{declared: declared, typ: t.stringOf(0)}
	v.walk("$", "", t)
	return v.found
}

type validator struct {
	declared bool
	typ      string
	found    Violations
}

// walk checks the object at path, which is the map called name or, without a
// name, the whole.
func (v *validator) walk(path, name string, t *table) {
	for n, f := range t.fields {
		at, value := path+"."+f.key, t.stringOf(n)
		raw, malformed := (*t.malformed)[f.key]
		if m := t.mapOf(n); m != nil {
			v.walk(at, f.key, m)
		} else if value != "" {
			for _, fault := range f.check(value) {
				v.add(at, strconv.Quote(value), f, fault)
			}
		} else if malformed {
			rule := "must be a string"
			if f.sub != nil && raw[0] == '{' {
				rule = "must be a map with each key once"
			} else if f.sub != nil {
				rule = "must be a map"
			}
			v.add(at, show(raw), f, fault{wrong, rule})
		} else if f.required && !v.declared {
			v.missing(at, name, f)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(*t.extra)) {
		if f, like := t.like(key); like {
			v.add(path+"."+key, show((*t.extra)[key]), f, fault{wrong, fmt.Sprintf("must be spelled %q, because many readers ignore the letter case", f.key)})
		}
	}
}

func (v *validator) missing(at, name string, f field) {
	if f.sub != nil {
		name = f.key
	}
	switch {
	case name == "":
		v.add(at, "", f, fault{wrong, "required"})
	case name == v.typ:
		v.add(at, "", f, fault{wrong, fmt.Sprintf("required when type is %q", name)})
	case f.sub == nil:
		v.add(at, "", f, fault{risky, fmt.Sprintf("required in the map %q", name)})
	}
}

func (v *validator) add(at, value string, f field, x fault) {
	v.found = append(v.found, Violation{
		Path:    at,
		Value:   value,
		Rule:    fmt.Sprintf("%s (Device Information Specification, %s)", x.rule, f.section),
		Warning: x.level == notable || x.level == risky && !v.declared,
	})
}

// show prints JSON on one line that is safe for a terminal.
func show(raw json.RawMessage) string {
	var b bytes.Buffer
	_ = json.Compact(&b, raw) // it was parsed before
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, b.String())
}
