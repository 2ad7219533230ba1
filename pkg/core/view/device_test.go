package view_test

import (
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/test/difftest"
)

func published(attributes map[string]string) view.Device {
	return view.Published(func(attribute string) string { return attributes[attribute] })
}

func TestResultDescribesDeviceAndSliceFillsGaps(t *testing.T) {
	vf, all := published(map[string]string{
		"resource.kubernetes.io/pciBusID": "0000:03:00.2", "devinfo-cni.io/pfPCIBusID": "0000:03:00.0",
		"devinfo-cni.io/representor": "eth4", "devinfo-cni.io/rdmaDevice": "mlx5_2",
	}), view.Device{Type: "pci", Device: "0000:03:00.2", PF: "0000:03:00.0", Representor: "eth4", RDMA: "mlx5_2"}
	sf := published(map[string]string{"devinfo-cni.io/rdmaDevice": "mlx5_7"})
	vdpa := devinfo.VDPA{ParentDevice: "vdpa0", Path: "/dev/vhost-vdpa-0", Address: "0000:03:00.2"}
	for _, test := range []struct{ got, want view.Device }{
		{vf, all},
		{view.Device{}.Or(vf), all},
		{view.Device{Device: vf.Device, Representor: "eth9"}.Or(vf), view.Device{Type: "pci", Device: vf.Device, PF: vf.PF, Representor: "eth9", RDMA: vf.RDMA}},
		{view.Device{Device: "other"}.Or(vf), view.Device{Device: "other"}},
		{sf, view.Device{RDMA: "mlx5_7"}},
		{view.Device{Type: "x"}.Or(sf), view.Device{Type: "x", RDMA: "mlx5_7"}},
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
