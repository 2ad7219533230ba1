package view_test

import (
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/test/difftest"
)

func TestDeviceOfInformationIsDescribed(t *testing.T) {
	vdpa := devinfo.VDPA{ParentDevice: "vdpa0", Path: "/dev/vhost-vdpa-0", Address: "0000:03:00.2"}
	for _, test := range []struct{ got, want view.Device }{
		{view.Of(&devinfo.Info{Type: "memif", Memif: &devinfo.Memif{Path: "/run/m"}}), view.Device{Type: "memif", Device: "/run/m"}},
		{view.Of(&devinfo.Info{Type: "vdpa", VDPA: &vdpa}), view.Device{Type: "vdpa", Device: "vdpa0", Path: vdpa.Path, PCI: vdpa.Address}},
	} {
		difftest.Equal(t, test.got, test.want)
	}
}

func TestNameOfPCIAddressMayLackDomain(t *testing.T) {
	const full = "0000:3b:00.2"
	for name, want := range map[string]struct {
		full     string
		misspelt bool
		named    bool
	}{
		full: {full, false, true}, "3B:00.2": {full, false, true}, "3b:00.3": {"0000:3b:00.3", false, false}, "0001:3b:00.2": {"0001:3b:00.2", false, false},
		"3b:00.8": {"3b:00.8", true, false}, "eth4": {"eth4", false, false}, "ETH0": {"ETH0", false, true}, "": {"", false, false},
	} {
		got := []any{view.FullAddress(name), view.Misspelt(name) != "", view.Named(name)("", "eth0", "0000:3B:00.2")}
		difftest.Same(t, name, got, []any{want.full, want.misspelt, want.named})
	}
}
