// Package difftest has what tests say over and over: that values are equal, that nothing failed, and that
// something will be so.
package difftest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Equal fails the test with the differences, if there are any.
func Equal(t *testing.T, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Same is Equal for one thing of several that a test compares.
func Same(t testing.TB, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: -want +got:\n%s", what, d)
	}
}

// Must ends the test if something failed.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until it is so.
func Eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for limit := time.Now().Add(3 * time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("never %s", what)
		}
	}
}
