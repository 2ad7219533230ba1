package sysfs_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/sysfs"
)

// listed is all that a host's lists give, one word for each device.
func listed(t *testing.T, name string) map[string]string {
	t.Helper()
	h, err := hosttxt.Load("../../testdata/hosts/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	f := sysfs.New(h.Sys())
	all := map[string]string{}
	functions, err := f.Functions()
	note(t, all, "functions", functions, err, func(fn sysfs.Function) string {
		number, most, ok, err := f.VFs(fn)
		if err != nil {
			t.Error(err)
		}
		if !ok {
			return fn.Address.String()
		}
		return fmt.Sprintf("%s(%d/%d)", fn.Address, number, most)
	})
	auxiliaries, err := f.Auxiliaries()
	note(t, all, "auxiliaries", auxiliaries, err, func(a sysfs.Auxiliary) string { return a.Name })
	vdpas, err := f.VDPAs()
	note(t, all, "vdpas", vdpas, err, func(v sysfs.VDPA) string { return v.Name })
	netdevs, err := f.Netdevs()
	note(t, all, "netdevs", netdevs, err, func(d sysfs.Netdev) string { return d.Name + "@" + d.Bus + "/" + d.Device })
	rdma, err := f.RDMADevices()
	note(t, all, "rdma", rdma, err, func(d sysfs.RDMADevice) string { return d.Name + "@" + d.Bus + "/" + d.Device + ":" + d.Netdev })
	return all
}

func note[D any](t *testing.T, all map[string]string, what string, list []D, err error, word func(D) string) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	var words []string
	for _, d := range list {
		words = append(words, word(d))
	}
	all[what] = strings.Join(words, " ")
}

func TestListsGiveTheDevicesOfCapturedHosts(t *testing.T) {
	for name, want := range map[string]map[string]string{
		"mlx5-switchdev": {
			"functions":   "0000:03:00.0(4/8) 0000:03:00.2 0000:03:00.3 0000:03:00.4 0000:03:00.5",
			"auxiliaries": "mlx5_core.eth.0 mlx5_core.rdma.0 mlx5_core.sf.4 mlx5_core.sf.7",
			"vdpas":       "",
			"netdevs": "en3f0pf0sf88@pci/0000:03:00.0 enp3s0f0s88@auxiliary/mlx5_core.sf.4 enp3s0f0v0@pci/0000:03:00.2 enp3s0f0v2@pci/0000:03:00.4 " +
				"enp3s0f0v1s99@auxiliary/mlx5_core.sf.7 eth4@pci/0000:03:00.0 eth5@pci/0000:03:00.0 eth6@pci/0000:03:00.0 eth7@pci/0000:03:00.0 lo@/ " +
				"p0@pci/0000:03:00.0 pf0hpf@pci/0000:03:00.0 pf0vf0@pci/0000:03:00.0 pf0vf1@pci/0000:03:00.0 pf0vf2@pci/0000:03:00.0 " +
				"pf0vf3@pci/0000:03:00.0 veth77ab01c3@/",
			"rdma": "mlx5_0@pci/0000:03:00.0:p0 mlx5_2@pci/0000:03:00.2:enp3s0f0v0 mlx5_3@pci/0000:03:00.3: mlx5_4@pci/0000:03:00.4:enp3s0f0v2 " +
				"mlx5_7@auxiliary/mlx5_core.sf.4:enp3s0f0s88 mlx5_8@auxiliary/mlx5_core.sf.7:enp3s0f0v1s99",
		},
		"vdpa-vf-virtio": {
			"functions": "0000:01:00.0(0/8) 0000:02:00.0(2/2) 0000:02:00.1 0000:02:00.2 0000:41:00.0(0/8)", "auxiliaries": "",
			"vdpas": "vpvdpa0", "rdma": "",
			"netdevs": "eth0@virtio/virtio3 eth1@virtio/virtio4 eth2@virtio/virtio5 lo@/",
		},
		"rxe-rdma": nil,
	} {
		got := listed(t, name)
		if want == nil {
			if !strings.Contains(got["rdma"], "rxe1@/:eth0") {
				t.Errorf("%s: %q", name, got["rdma"])
			}
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestListsThatCannotBeReadAreErrors(t *testing.T) {
	h, err := hosttxt.Load("../../testdata/hosts/mlx5-vdpa.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string]func(*sysfs.FS) error{
		"bus/pci/devices":                    func(f *sysfs.FS) error { _, err := f.Functions(); return err },
		"bus/pci/devices/0000:65:00.0/class": func(f *sysfs.FS) error { _, err := f.Functions(); return err },
		"bus/auxiliary/devices":              func(f *sysfs.FS) error { _, err := f.Auxiliaries(); return err },
		"bus/vdpa/devices":                   func(f *sysfs.FS) error { _, err := f.VDPAs(); return err },
		"class/net":                          func(f *sysfs.FS) error { _, err := f.Netdevs(); return err },
		"class/infiniband":                   func(f *sysfs.FS) error { _, err := f.RDMADevices(); return err },
	} {
		if err := list(sysfs.New(failing{h.Sys(), name, syscall.EIO})); err == nil || !strings.Contains(err.Error(), "input/output") {
			t.Errorf("%s: %v", name, err)
		}
		if err := list(sysfs.New(failing{h.Sys(), name, syscall.ENOENT})); err != nil {
			t.Errorf("%s is not there: %v", name, err)
		}
	}
}
