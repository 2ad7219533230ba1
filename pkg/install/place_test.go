package install_test

import (
	"path/filepath"
	"testing"

	"devinfo-cni.io/pkg/install"
)

// place expects that state, and the plugin to be from that file.
func place(t *testing.T, p *install.Plugin, state, from string) {
	t.Helper()
	done, err := p.Place(t.Context())
	if err != nil || done.State != state {
		t.Fatalf("got %+v, %v; want %q", done, err, state)
	}
	if read(t, filepath.Join(p.Dir, install.Name)) != read(t, from) {
		t.Errorf("%s: there is another file than %s", state, from)
	}
	if names := listing(t, p.Dir); len(names) != 1 {
		t.Errorf("in the directory: %d files", len(names))
	}
}

func TestAPluginIsPlacedOnceByTheRulesOfAnAgent(t *testing.T) {
	low, high := built(t, "v1.2.0"), built(t, "v1.3.0")
	p := keeper(t, low)
	place(t, p, install.Installed, low)
	place(t, p, install.AlreadyThere, low)
	p.From = high
	place(t, p, install.Replaced, high)
	p.From = low
	place(t, p, install.Replaced, low)

	p.Newer, p.From = entries(t, `{"format": 99}`), high
	if _, err := p.Place(t.Context()); err == nil {
		t.Error("the journal has entries that it cannot read")
	}
	script(t, p.Dir)
	p.Newer = none
	_, err := p.Place(t.Context())
	expect(t, err, "is not a devinfo plugin: remove it, or give --replace-foreign to replace it")
	p.ReplaceForeign = true
	place(t, p, install.Replaced, high)
}

func TestAFileThatSaysNoVersionIsPlacedAsTold(t *testing.T) {
	other := script(t, t.TempDir())
	p := keeper(t, other)
	script(t, p.Dir)
	write(t, filepath.Join(p.Dir, install.Name), read(t, other)+"# another\n", 0o755)
	place(t, p, install.Replaced, other)
}
