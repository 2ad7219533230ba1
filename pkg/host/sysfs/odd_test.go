package sysfs_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// odd maps names to made-up hosts and the lines that a teller must write about them, except the lines about lineages
// and the host.
var odd = map[string]struct{ host, want string }{
	"auxiliary device without a function": {`
-- sys/bus/auxiliary/devices/snd.0 -> ../../../devices/platform/snd/snd.0 --
-- sys/devices/platform/snd/snd.0/ --
`, "auxiliary snd.0"},
	"vDPA device on another driver": {`
-- sys/bus/vdpa/drivers/vduse/ --
-- sys/bus/vdpa/devices/v0 -> ../../../devices/virtual/v0 --
-- sys/devices/virtual/v0/driver -> ../../../bus/vdpa/drivers/vduse --
`, "vdpa v0 driver=vduse"},
	"several vDPA devices, of which one is on an SF, and one a namesake": {`
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/bus/vdpa/drivers/vhost_vdpa/ --
-- sys/bus/vdpa/devices/vdpa10 -> ../../../devices/pci0000:00/0000:01:00.0/vdpa10 --
-- sys/bus/vdpa/devices/vdpa9 -> ../../../devices/pci0000:00/0000:01:00.0/vdpa9 --
-- sys/bus/vdpa/devices/vdpa11 -> ../../../devices/pci0000:00/0000:01:00.0/x.sf.1/vdpa11 --
-- sys/bus/auxiliary/devices/x.sf.1 -> ../../../devices/pci0000:00/0000:01:00.0/x.sf.1 --
-- sys/devices/pci0000:00/0000:01:00.0/x.sf.1/vdpa11/ --
-- sys/bus/vdpa/devices/net -> ../../../devices/elsewhere/net --
-- sys/devices/elsewhere/net/ --
-- sys/devices/pci0000:00/0000:01:00.0/net/eth0/ --
-- sys/devices/pci0000:00/0000:01:00.0/sriov_numvfs --
0
-- sys/devices/pci0000:00/0000:01:00.0/vdpa10/driver -> ../../../../bus/vdpa/drivers/vhost_vdpa --
-- sys/devices/pci0000:00/0000:01:00.0/vdpa10/vhost-vdpa-3/ --
-- sys/devices/pci0000:00/0000:01:00.0/vdpa9/ --
`, `function 0000:01:00.0 vdpa=vdpa9,vdpa10
auxiliary x.sf.1 sf=true pci=0000:01:00.0 vdpa=vdpa11
vdpa net
vdpa vdpa9 pci=0000:01:00.0 by=pci/0000:01:00.0
vdpa vdpa10 driver=vhost pci=0000:01:00.0 vhost=vhost-vdpa-3 by=pci/0000:01:00.0
vdpa vdpa11 pci=0000:01:00.0 aux=x.sf.1 sf=x.sf.1 by=auxiliary/x.sf.1`},
	"namesake of a vDPA device": {`
-- sys/bus/vdpa/devices/card -> ../../../devices/elsewhere/card --
-- sys/bus/virtio/devices/virtio0 -> ../../../devices/platform/card/virtio0 --
-- sys/devices/elsewhere/card/ --
-- sys/devices/platform/card/virtio0/ --
`, "vdpa card\nvirtio virtio0"},
	"RDMA nodes, of which umad11 has no attribute dev": {`
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/devices/pci0000:00/0000:01:00.0/infiniband_mad/umad10/dev --
231:10
-- sys/devices/pci0000:00/0000:01:00.0/infiniband_mad/umad9/dev --
231:9
-- sys/devices/pci0000:00/0000:01:00.0/infiniband_mad/issm9/dev --
231:73
-- sys/devices/pci0000:00/0000:01:00.0/infiniband_mad/umad11/ibdev --
mlx5_0
`, "function 0000:01:00.0 nodes=issm9,umad9,umad10"},
	"RDMA devices, by prefix, then by number": {`
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/devices/pci0000:00/0000:01:00.0/infiniband/mlx5_10/ --
-- sys/devices/pci0000:00/0000:01:00.0/infiniband/rocep1s0f1/ --
-- sys/devices/pci0000:00/0000:01:00.0/infiniband/mlx5_bond_0/ --
-- sys/devices/pci0000:00/0000:01:00.0/infiniband/bnxt_re11/ --
-- sys/devices/pci0000:00/0000:01:00.0/infiniband/mlx5_100/ --
-- sys/devices/pci0000:00/0000:01:00.0/infiniband/mlx5_bond/ --
-- sys/devices/pci0000:00/0000:01:00.0/infiniband/mlx5_2/ --
-- sys/devices/pci0000:00/0000:01:00.0/infiniband/bnxt_re0/ --
`, "function 0000:01:00.0 rdma=bnxt_re0,bnxt_re11,mlx5_2,mlx5_10,mlx5_100,mlx5_bond,mlx5_bond_0,rocep1s0f1"},
	// The first function has a vendor's VFIO driver, no IOMMU and a device node for iommufd. The kernel of the second
	// one has no such device nodes, but has the directory vfio-dev.
	"VFIO": {`
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/devices/pci0000:00/0000:01:00.0/driver -> ../../../bus/pci/drivers/mlx5_vfio_pci --
-- sys/devices/pci0000:00/0000:01:00.0/iommu_group -> ../../../kernel/iommu_groups/3 --
-- sys/devices/pci0000:00/0000:01:00.0/vfio-dev/vfio7/dev --
511:7
-- sys/kernel/iommu_groups/3/name --
vfio-noiommu
-- sys/bus/pci/devices/0000:02:00.0 -> ../../../devices/pci0000:00/0000:02:00.0 --
-- sys/devices/pci0000:00/0000:02:00.0/driver -> ../../../bus/pci/drivers/vfio-pci --
-- sys/devices/pci0000:00/0000:02:00.0/vfio-dev/vfio8/power/ --
`, "function 0000:01:00.0 driver=mlx5_vfio_pci vfio=true,noiommu-3,vfio7 group=3\nfunction 0000:02:00.0 driver=vfio-pci vfio=true"},
	"NUMA node that is -1, or not there": {`
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/devices/pci0000:00/0000:01:00.0/numa_node --
1
-- sys/bus/pci/devices/0000:02:00.0 -> ../../../devices/pci0000:00/0000:02:00.0 --
-- sys/devices/pci0000:00/0000:02:00.0/numa_node --
-1
-- sys/bus/pci/devices/0000:03:00.0 -> ../../../devices/pci0000:00/0000:03:00.0 --
-- sys/devices/pci0000:00/0000:03:00.0/vendor --
0x15b3
`, "function 0000:01:00.0 numa=1\nfunction 0000:02:00.0\nfunction 0000:03:00.0 vendor=0x15b3"},
	// PCIe SR-IOV 3.3.10: with one VF the stride is unused and may be 0.
	"single VF, with stride 0, beside one that is a stranger": {`
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/devices/pci0000:00/0000:01:00.0/sriov_offset --
3
-- sys/devices/pci0000:00/0000:01:00.0/sriov_stride --
0
-- sys/devices/pci0000:00/0000:01:00.0/virtfn0 -> ../0000:01:00.3 --
-- sys/bus/pci/devices/0000:01:00.3 -> ../../../devices/pci0000:00/0000:01:00.3 --
-- sys/devices/pci0000:00/0000:01:00.3/physfn -> ../0000:01:00.0 --
-- sys/bus/pci/devices/0000:01:00.4 -> ../../../devices/pci0000:00/0000:01:00.4 --
-- sys/devices/pci0000:00/0000:01:00.4/physfn -> ../0000:01:00.0 --
`, "function 0000:01:00.0\nfunction 0000:01:00.3 pf=0000:01:00.0 vf=no.0\nfunction 0000:01:00.4 pf=0000:01:00.0"},
	"IOMMU group with a bridge and a stranger, and drivers that are bound by name": {drivers, `function 0000:00:02.0
function 0000:01:00.0 driver=igb group=3 members=0000:00:02.0,true,0000:01:00.0,igb,false,fsl.mc.1,false
function 0000:02:00.0 override=vfio-pci`},
}

const drivers = `
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/bus/pci/devices/0000:00:02.0 -> ../../../devices/pci0000:00/0000:00:02.0 --
-- sys/bus/pci/devices/0000:02:00.0 -> ../../../devices/pci0000:00/0000:02:00.0 --
-- sys/bus/pci/drivers/igb/ --
-- sys/devices/pci0000:00/0000:01:00.0/driver -> ../../../bus/pci/drivers/igb --
-- sys/devices/pci0000:00/0000:01:00.0/driver_override --
(null)
-- sys/devices/pci0000:00/0000:01:00.0/iommu_group -> ../../../kernel/iommu_groups/3 --
-- sys/devices/pci0000:00/0000:00:02.0/class --
0x060400
-- sys/devices/pci0000:00/0000:02:00.0/driver_override --
vfio-pci
-- sys/kernel/iommu_groups/3/devices/0000:00:02.0 -> ../../../../devices/pci0000:00/0000:00:02.0 --
-- sys/kernel/iommu_groups/3/devices/0000:01:00.0 -> ../../../../devices/pci0000:00/0000:01:00.0 --
-- sys/kernel/iommu_groups/3/devices/fsl.mc.1 -> ../../../../devices/fsl.mc.1 --
-- sys/module/vfio/parameters/enable_unsafe_noiommu_mode --
Y
`

func TestOddHostsAreReadCompletely(t *testing.T) {
	for name, test := range odd {
		t.Run(name, func(t *testing.T) {
			each(t, "made up\n"+test.host, func(t *testing.T, sys *sysfs.FS) {
				text, err := told(sys)
				var got []string
				for line := range strings.Lines(text) {
					if line, _, _ = strings.Cut(strings.TrimSpace(line), " line="); !strings.HasPrefix(line, "host ") {
						got = append(got, line)
					}
				}
				must(t, err)
				difftest.Equal(t, got, strings.Split(test.want, "\n"))
			})
		})
	}
}

func TestIsSFChecksNumberAndName(t *testing.T) {
	for name, want := range map[string]bool{"ice.sf.1": true, "ice.roce.1": false, "idpf.8086.rdma.core.0": false, "sf.1": false, "sf": false} {
		if got := (sysfs.Auxiliary{Name: name}).IsSF(); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestHasDriverFindsOnlyExistingDrivers(t *testing.T) {
	each(t, "made up\n"+drivers, func(t *testing.T, sys *sysfs.FS) {
		for name, want := range map[string]bool{"igb": true, "vfio-pci": false, "": false, "../igb": false} {
			if got, err := sys.HasDriver(name); err != nil || got != want {
				t.Errorf("driver %q: %v, %v", name, got, err)
			}
		}
		if free, err := sys.WithoutIOMMU(); !free || err != nil {
			t.Errorf("got %v, %v", free, err)
		}
	})
}

func TestPortsReadsAtMostEight(t *testing.T) {
	fsys := fstest.MapFS{"bus/pci/devices/0000:01:00.0": {Mode: fs.ModeSymlink, Data: []byte("../../../devices/0000:01:00.0")}}
	for n := range 100 {
		port := fmt.Sprintf("devices/0000:01:00.0/net/eth%d/", n)
		fsys[port+"ifindex"] = &fstest.MapFile{Data: fmt.Appendln(nil, n)}
		fsys[port+"dev_port"] = &fstest.MapFile{Data: []byte("1\n")}
	}
	sys := sysfs.New(fsys)
	ports, err := sys.Ports(function(t, sys, "0000:01:00.0"))
	if err != nil || len(ports) != 8 || ports[0].DevPort != 1 {
		t.Errorf("%+v, %v", ports, err)
	}
	if ports, err := sys.PortsOf("pci", "0000:01:00.0"); err != nil || len(ports) != 100 {
		t.Errorf("%d, %v", len(ports), err)
	}
}
