package devinfo

import (
	"fmt"
	"slices"
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
