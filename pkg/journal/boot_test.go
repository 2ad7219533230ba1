package journal_test

import (
	"testing"

	"devinfo-cni.io/pkg/journal"
)

func TestAnEntryIsOfThisBootUnlessBothIDsSayOtherwise(t *testing.T) {
	for _, c := range []struct {
		entry, now string
		want       bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"", "b", true}, {"a", "", true}, {"", "", true},
	} {
		if got := (&journal.Entry{BootID: c.entry}).OfBoot(c.now); got != c.want {
			t.Errorf("an entry of boot %q in boot %q: %v, want %v", c.entry, c.now, got, c.want)
		}
	}
}
