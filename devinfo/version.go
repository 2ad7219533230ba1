package devinfo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SpecVersion is the version of the specification that this package implements
// and that new files carry (section 3.1.2).
const SpecVersion = "1.1.0"

// VersionError is what [Parse] returns for a version of another major number:
// its keys may mean something else.
type VersionError struct {
	Version string // as it stands in the file
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("device-info version %.40q is not supported: this package reads 1.x and implements %s (Device Information Specification, 3.1.2)", e.Version, SpecVersion)
}

// parseVersion reads "MAJOR.MINOR.PATCH" and nothing else: numbers without
// leading zeros, no "v" before and no suffix behind.
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

// foreignMajor looks at the first number only: "2" and "2.x" are no versions,
// but nothing that this package should guess at either.
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
