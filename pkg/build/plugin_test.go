package build_test

import (
	"testing"

	"devinfo-cni.io/pkg/build"
)

func TestPluginVersionIsParsed(t *testing.T) {
	for text, p := range map[string]build.Plugin{
		"devinfo v1.2.0-4-gabcdef0-dirty, commit 0123456789ab (dirty), go1.26.0\njournal format 12\n": {
			Info: build.Info{Version: "v1.2.0-4-gabcdef0-dirty", Revision: "0123456789ab", Dirty: true, Go: "go1.26.0"}, JournalFormat: 12,
		},
		"devinfo v1.2.0\njournal format 2\n":                 {Info: build.Info{Version: "v1.2.0"}, JournalFormat: 2},
		"devinfo (devel), go1.27-rc1\njournal format 2\n":    {Info: build.Info{Version: "(devel)", Go: "go1.27-rc1"}, JournalFormat: 2},
		"devinfo v1, commit 01, go1.26\njournal format 33\n": {Info: build.Info{Version: "v1", Revision: "01", Go: "go1.26"}, JournalFormat: 33},
	} {
		if p.String() != text {
			t.Errorf("%q; want %q", p, text)
		}
		for _, later := range []string{"", "licence Apache-2.0\n"} {
			if got, err := build.ParsePlugin(text + later); err != nil || got != p {
				t.Errorf("%q: %+v, %v", text, got, err)
			}
		}
	}
	if got, err := build.ParsePlugin("devinfo v2\nlater than this\njournal format 3\n"); err != nil || got.JournalFormat != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestInvalidPluginVersionIsError(t *testing.T) {
	for _, text := range []string{
		"", "\n", "devinfo", "devinfo \njournal format 2\n", "devinfo a b\njournal format 2\n", "bridge v1.9.1\njournal format 2\n",
		"CNI plugin devinfo: device information for network attachments", "devinfo v1\n", "devinfo v1\njournal format x\n", "devinfo v1\njournal format 0\n",
		"devinfo v\xff\njournal format 2\n", // labels of metrics must be UTF-8
	} {
		if got, err := build.ParsePlugin(text); err == nil || got != (build.Plugin{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
