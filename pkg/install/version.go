package install

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"
)

// described is what git describe adds to the last tag: the commits since then.
var described = regexp.MustCompile(`-([0-9]+)-g[0-9a-f]{4,40}$`)

// compare is -1 where version a is lower than b, 0 where they are the same, else 1; ok is
// false where one of them is no version of a release or of a commit after one.
func compare(a, b string) (n int, ok bool) {
	tagA, commitsA := parts(a)
	tagB, commitsB := parts(b)
	if !semver.IsValid(tagA) || !semver.IsValid(tagB) {
		return 0, false
	}
	return cmp.Or(semver.Compare(tagA, tagB), cmp.Compare(commitsA, commitsB)), true
}

// parts of what git describe --dirty gives.
func parts(version string) (tag string, commits int) {
	tag = strings.TrimSuffix(version, "-dirty")
	if found := described.FindStringSubmatch(tag); found != nil {
		tag = strings.TrimSuffix(tag, found[0])
		commits, _ = strconv.Atoi(found[1])
	}
	if tag != "" && tag[0] != 'v' {
		tag = "v" + tag
	}
	return tag, commits
}
