// Package difftest has what tests say over and over: that values are equal, that nothing failed, that
// something will be so, and that help is not too wide.
package difftest

import (
	"bytes"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// Equal fails the test with the differences, if there are any.
func Equal(t *testing.T, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
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

// HelpFits fails the test for each line of the help of a command, and of those below it, that has more than
// 100 columns.
func HelpFits(t *testing.T, command *cobra.Command) {
	t.Helper()
	var help bytes.Buffer
	command.SetOut(&help)
	Must(t, command.Help())
	for _, line := range regexp.MustCompile(".{101,}").FindAllString(help.String(), -1) {
		t.Errorf("%s --help: %s", command.CommandPath(), line)
	}
	for _, below := range command.Commands() {
		HelpFits(t, below)
	}
}
