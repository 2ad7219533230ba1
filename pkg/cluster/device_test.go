package cluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/cluster"
)

func TestADeviceIsShownAsItsInformationHasIt(t *testing.T) {
	for text, want := range map[string]cluster.Device{
		`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.5", "pf-pci-address": "0000:03:00.0", "representor-device": "eth7", "rdma-device": "mlx5_5,mlx5_6"}}`: {
			Type: "pci", Device: "0000:03:00.5", PF: "0000:03:00.0", Representor: "eth7", RDMA: "mlx5_5,mlx5_6"},
		`{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa0", "driver": "vhost", "path": "/dev/vhost-vdpa-0", "pci-address": "0000:65:00.3"}}`: {
			Type: "vdpa", Device: "vdpa0", Path: "/dev/vhost-vdpa-0", PCI: "0000:65:00.3"},
		`{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "server", "path": "/run/s"}}`:           {Type: "vhost-user", Device: "/run/s"},
		`{"type": "memif", "version": "1.1.0", "memif": {"role": "server", "path": "/run/m", "mode": "ethernet"}}`: {Type: "memif", Device: "/run/m"},
	} {
		info, err := devinfo.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, cluster.DeviceOf(info)); diff != "" {
			t.Error(diff)
		}
	}
}
