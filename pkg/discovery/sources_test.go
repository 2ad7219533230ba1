package discovery_test

import (
	"errors"
	"testing"

	"devinfo-cni.io/pkg/discovery"
)

func TestSocketWhosePathReadersMangleIsUndescribable(t *testing.T) {
	for _, path := range []string{"/run/a b", "/run/a=b", `/run/a\b`, "/run/a\nb", "run/s"} {
		for _, typ := range []string{"vhost-user", "memif"} {
			device, err := on(t, load(t, "i40e")).Find(discovery.Target{Declared: info(t, `{"type": "`+typ+`"}`), SocketPath: path})
			if undescribable := (*discovery.UndescribableError)(nil); err != nil || device.Info != nil || !errors.As(device.Problem, &undescribable) {
				t.Errorf("%q: %s", path, show(t, device, err))
			}
		}
	}
}

func TestIdentityIsWhatNamesTheDevice(t *testing.T) {
	if got := discovery.Identity(nil); got != "" {
		t.Errorf("of nothing: %q", got)
	}
	for text, want := range map[string]string{
		`{}`:              "",
		`{"type": "pci"}`: "",
		`{"pci": {"pci-address": "0000:01:00.0"}}`:                "",
		`{"type": "pci", "pci": {"pci-address": "0000:0A:00.0"}}`: "0000:0a:00.0",
		`{"type": "vdpa"}`: "",
		`{"type": "vdpa", "vdpa": {"pci-address": "0000:0A:00.0"}}`:                           "0000:0a:00.0",
		`{"type": "vdpa", "vdpa": {"parent-device": "Vdpa0", "pci-address": "0000:0A:00.0"}}`: "Vdpa0",
		`{"type": "vhost-user", "vhost-user": {"path": "/Run/s"}}`:                            "/Run/s",
		`{"type": "vhost-user", "memif": {"path": "/run/s"}}`:                                 "",
		`{"type": "memif", "memif": {"path": "/run/m"}}`:                                      "/run/m",
		`{"type": "memif"}`: "",
	} {
		if got := discovery.Identity(info(t, text)); got != want {
			t.Errorf("of %s: %q, want %q", text, got, want)
		}
	}
}
