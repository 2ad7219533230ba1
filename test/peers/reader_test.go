package peers_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	nadutils "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/utils"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
)

// Multus reads our files through this library and puts them into network-status.
func TestMultusReadsWhatWeWrite(t *testing.T) {
	for name, c := range map[string]struct {
		ours   devinfo.Info
		theirs nadv1.DeviceInfo
	}{
		"pci": {
			devinfo.Info{Type: devinfo.TypePCI, Version: "1.1.0", PCI: &devinfo.PCI{
				Address: "0000:03:00.2", VhostNet: "/dev/vhost-net", RDMADevice: "mlx5_2", PFAddress: "0000:03:00.0", Representor: "eth4"}},
			nadv1.DeviceInfo{Type: "pci", Version: "1.1.0", Pci: &nadv1.PciDevice{
				PciAddress: "0000:03:00.2", Vhostnet: "/dev/vhost-net", RdmaDevice: "mlx5_2", PfPciAddress: "0000:03:00.0", RepresentorDevice: "eth4"}},
		},
		"vdpa": {
			devinfo.Info{Type: devinfo.TypeVDPA, Version: "1.1.0", VDPA: &devinfo.VDPA{
				ParentDevice: "vdpa0", Driver: "vhost", Path: "/dev/vhost-vdpa-0", Address: "0000:65:00.3", PFAddress: "0000:65:00.0", Representor: "eth4"}},
			nadv1.DeviceInfo{Type: "vdpa", Version: "1.1.0", Vdpa: &nadv1.VdpaDevice{
				ParentDevice: "vdpa0", Driver: "vhost", Path: "/dev/vhost-vdpa-0", PciAddress: "0000:65:00.3", PfPciAddress: "0000:65:00.0", RepresentorDevice: "eth4"}},
		},
		"vhost-user": {
			devinfo.Info{Type: devinfo.TypeVhostUser, Version: "1.1.0", VhostUser: &devinfo.VhostUser{Mode: "client", Path: "/run/s.sock"}},
			nadv1.DeviceInfo{Type: "vhost-user", Version: "1.1.0", VhostUser: &nadv1.VhostDevice{Mode: "client", Path: "/run/s.sock"}},
		},
		"memif": {
			devinfo.Info{Type: devinfo.TypeMemif, Version: "1.1.0", Memif: &devinfo.Memif{Role: "master", Path: "/run/m.sock", Mode: "ethernet"}},
			nadv1.DeviceInfo{Type: "memif", Version: "1.1.0", Memif: &nadv1.MemifDevice{Role: "master", Path: "/run/m.sock", Mode: "ethernet"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := store.Open(dir).Write("net-abc_net1", c.ours.Encode()); err != nil {
				t.Fatal(err)
			}
			got, err := nadutils.LoadDeviceInfoFromCNI(filepath.Join(dir, "net-abc_net1"))
			if err != nil || !reflect.DeepEqual(*got, c.theirs) {
				t.Errorf("read %+v (%v), want %+v", got, err, c.theirs)
			}
		})
	}
}

// And we read what it writes, mode-000 directories and all.
func TestWeReadWhatMultusWrites(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "k8s.cni.cncf.io", "devinfo")
	path := filepath.Join(dir, "net-abc_net1")
	theirs := nadv1.DeviceInfo{Type: "pci", Version: "1.0.0", Pci: &nadv1.PciDevice{PciAddress: "0000:03:00.2"}}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := nadutils.SaveDeviceInfoForCNI(path, &theirs); err != nil {
		t.Fatal(err)
	}
	got, err := devinfo.ReadFile(path)
	want := &devinfo.Info{Type: devinfo.TypePCI, Version: "1.0.0", PCI: &devinfo.PCI{Address: "0000:03:00.2"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v (%v), want %+v", got, err, want)
	}
}
