// Package difftest compares whole values in tests.
package difftest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal fails the test with the differences, if there are any.
func Equal(t *testing.T, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
