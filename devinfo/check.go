package devinfo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"devinfo-cni.io/devinfo/pci"
)

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
