package devinfo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"devinfo-cni.io/devinfo/pci"
)

// Violation is one deviation from the specification.
type Violation struct {
	Path    string // JSON path: "$.pci.pci-address"
	Value   string // the offending value: strings quoted, others as JSON; empty if the key is missing
	Rule    string // the requirement, with its section: `must be "vhost" or "virtio" (Device Information Specification, 3.1.4.2)`
	Warning bool   // readers should still accept the file
}

// String returns one line: `$.vdpa.driver: "vfio": must be "vhost" or "virtio" (Device Information
// Specification, 3.1.4.2)`.
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

// Violations are all violations of one device-info map, in the specification's order.
type Violations []Violation

// Errors returns the violations that are errors.
func (v Violations) Errors() Violations {
	return slices.DeleteFunc(slices.Clone(v), func(one Violation) bool { return one.Warning })
}

// Warnings returns the violations that are only warnings.
func (v Violations) Warnings() Violations {
	return slices.DeleteFunc(slices.Clone(v), func(one Violation) bool { return !one.Warning })
}

// Err returns an [*InvalidError] with the errors in v, or nil if v has only warnings.
func (v Violations) Err() error {
	if bad := v.Errors(); len(bad) > 0 {
		return &InvalidError{Violations: bad}
	}
	return nil
}

// InvalidError is the error for device information that breaks the specification. Its text has the first ten violations.
type InvalidError struct {
	Path       string     // the file; "" if the information did not come from a file
	Violations Violations // at least one; only errors
}

func (e *InvalidError) Error() string {
	const most = 10 // of a file with thousands, in an error that the kubelet repeats
	var lines []string
	for _, v := range e.Violations[:min(most, len(e.Violations))] {
		lines = append(lines, v.String())
	}
	if more := len(e.Violations) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("%d more", more))
	}
	text := "invalid device-info: " + strings.Join(lines, "; ")
	if e.Path != "" {
		text = e.Path + ": " + text
	}
	return text
}

// Validate checks a complete device-info map as a reader should (section 3): every required key must be
// present, and each value must have the right JSON type and form. It returns warnings for relative socket
// paths, characters that readers mangle, PCI domains of more than four digits, versions newer than
// [SpecVersion], and keys missing in a map of another type.
func (i *Info) Validate() Violations { return i.validate(false) }

// ValidateDeclared checks a partial device-info map, such as deviceInfo in a network configuration. It requires
// no keys, but holds present values to stricter rules: only PCI domains of more than four digits and newer
// versions are warnings, everything else is an error.
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

// walk checks the object at path. name is the key of the map, or "" for the top level.
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

// show formats JSON as one line that is safe to print on a terminal.
func show(raw json.RawMessage) string {
	var b bytes.Buffer
	_ = json.Compact(&b, raw) // raw is valid JSON
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, b.String())
}

// A check returns every fault of a value that is not empty.
type check func(value string) []fault

type fault struct {
	level level
	rule  string
}

type level int

const (
	wrong   level = iota // an error
	risky                // a warning to a reader, an error in a declaration
	notable              // a warning
)

func oneOf(allowed ...string) check {
	return func(value string) []fault {
		if slices.Contains(allowed, value) {
			return nil
		}
		last := len(allowed) - 1
		return []fault{{wrong, fmt.Sprintf(`must be "%s" or "%s"`, strings.Join(allowed[:last], `", "`), allowed[last])}}
	}
}

func isPCIAddress(value string) []fault {
	if _, err := pci.Parse(value); err != nil {
		return []fault{{wrong, "must be a PCI address dddd:BB:DD.f"}}
	}
	if len(value) > len("dddd:BB:DD.f") {
		return []fault{{notable, "has a PCI domain of more than four digits: should be dddd:BB:DD.f"}}
	}
	return nil
}

// isAbsolute is for the vDPA path, which the specification requires to be absolute.
func isAbsolute(value string) []fault {
	return path(value, fault{wrong, "must be an absolute path"})
}

func isPath(value string) []fault { return path(value, fault{risky, "should be an absolute path"}) }

func path(value string, relative fault) []fault {
	if strings.HasPrefix(value, "/") {
		return isText(value)
	}
	return append([]fault{relative}, isText(value)...)
}

// isText reports characters that change before the workload sees them: app-netutil splits the annotation at "="
// and deletes spaces and backslashes.
func isText(value string) (faults []fault) {
	mangled := func(r rune) bool {
		return r == '=' || r == '\\' || unicode.IsSpace(r) && !unicode.IsControl(r)
	}
	if strings.ContainsFunc(value, mangled) {
		faults = append(faults, fault{risky, `should hold no "=", blank or backslash, which app-netutil mangles`})
	}
	if strings.ContainsFunc(value, unicode.IsControl) {
		faults = append(faults, fault{risky, "should hold no control characters"})
	}
	return faults
}

// SpecVersion is the version of the specification that this package implements. New files carry it (section 3.1.2).
const SpecVersion = "1.1.0"

// VersionError is the error of [Parse] for an unsupported major version.
type VersionError struct {
	Version string // as written in the file
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("device-info version %.40q is not supported: this package reads 1.x and implements %s (Device Information Specification, 3.1.2)", e.Version, SpecVersion)
}

// parseVersion accepts exactly "MAJOR.MINOR.PATCH": no leading zeros, no "v" prefix, no suffix.
func parseVersion(s string) (v [3]uint64, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) != len(v) {
		return v, false
	}
	for n, p := range parts {
		number, err := strconv.ParseUint(p, 10, 64)
		if err != nil || len(p) > 1 && p[0] == '0' {
			return v, false
		}
		v[n] = number
	}
	return v, true
}

func compareWithSpec(v [3]uint64) int {
	spec, _ := parseVersion(SpecVersion)
	return slices.Compare(v[:], spec[:])
}

// foreignMajor reports whether the version begins with a number other than 1, even if it is malformed, as "2" is.
func foreignMajor(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.ParseUint(major, 10, 64)
	return n != 1 && !errors.Is(err, strconv.ErrSyntax)
}

func isVersion(value string) []fault {
	v, ok := parseVersion(value)
	switch {
	case !ok:
		return []fault{{wrong, "must be a version MAJOR.MINOR.PATCH"}}
	case v[0] != 1:
		return []fault{{wrong, "must be a version 1.x"}}
	case compareWithSpec(v) > 0:
		return []fault{{notable, "is newer than " + SpecVersion + ", the version it was checked against"}}
	}
	return nil
}
