package plugin_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
)

// TestTheReferenceHasTheErrorCodes reads the constants of errors.go. Code 1, of a cniVersion
// that is not supported, is not among them.
func TestTheReferenceHasTheErrorCodes(t *testing.T) {
	spec := map[string]uint{
		"ErrUnsupportedField": types.ErrUnsupportedField, "ErrInvalidEnvironmentVariables": types.ErrInvalidEnvironmentVariables,
		"ErrIOFailure": types.ErrIOFailure, "ErrDecodingFailure": types.ErrDecodingFailure, "ErrInvalidNetworkConfig": types.ErrInvalidNetworkConfig,
		"ErrInvalidNetNS": types.ErrInvalidNetNS, "ErrTryAgainLater": types.ErrTryAgainLater,
	}
	codes := []int{1}
	for _, found := range find(t, `(?m)^\tcode\w+ += (?:types\.(\w+)|uint\((\d+)\))`, "errors.go") {
		code, _ := strconv.Atoi(found[2])
		if found[1] != "" {
			code = int(spec[found[1]]) // 0 if it is not in the map above
		}
		codes = append(codes, code)
	}
	var documented []int
	for _, found := range find(t, `(?m)^\| (\d+) \| `, "../../docs/reference.md") {
		code, _ := strconv.Atoi(found[1])
		documented = append(documented, code)
	}
	slices.Sort(codes)
	if diff := cmp.Diff(codes, documented); diff != "" {
		t.Errorf("(-code +docs/reference.md)\n%s", diff)
	}
}

func find(t *testing.T, expression, path string) [][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	return regexp.MustCompile(expression).FindAllStringSubmatch(string(text), -1)
}
