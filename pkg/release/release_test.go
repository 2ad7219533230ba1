package release_test

import (
	"testing"

	"devinfo-cni.io/pkg/release"
)

func TestWhatIsPrintedCanBeRead(t *testing.T) {
	r := release.Release{Version: "v1.2.0-4-gabcdef0-dirty", JournalFormat: 12}
	if text := r.String(); text != "devinfo v1.2.0-4-gabcdef0-dirty\njournal format 12\n" {
		t.Errorf("%q", text)
	}
	for _, later := range []string{"", "licence Apache-2.0\n"} {
		if got, err := release.Parse(r.String() + later); err != nil || got != r {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if got, err := release.Parse("devinfo v2\nlater than this\n" + "journal format 3\n"); err != nil || got.JournalFormat != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWhatSaysNoReleaseIsAnError(t *testing.T) {
	for _, text := range []string{
		"", "\n", "devinfo", "devinfo \njournal format 2\n", "devinfo a b\njournal format 2\n", "bridge v1.9.1\njournal format 2\n",
		"CNI plugin devinfo: device information for network attachments", "devinfo v1\n", "devinfo v1\njournal format x\n", "devinfo v1\njournal format 0\n",
	} {
		if got, err := release.Parse(text); err == nil || got != (release.Release{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
