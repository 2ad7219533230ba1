package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/hosttxt"
)

const note = `snapshot: tiny
guest kernel: 6.12.1+deb13-amd64 #1 SMP
QEMU: QEMU emulator version 11, -machine q35 -accel tcg
scenario: one NIC
`

const unread = `/sys/devices/pci0000:00/0000:01:00.0/net/eth0/phys_switch_id	read /sys/devices/pci0000:00/0000:01:00.0/net/eth0/phys_switch_id: operation not supported
/sys/devices/pci0000:00/0000:01:00.0/net/eth0/speed	read /sys/devices/pci0000:00/0000:01:00.0/net/eth0/speed: invalid argument
`

const commands = `== ip -d -j link
[{"ifindex":2,"ifname":"eth0","qdisc":"mq","parentbus":"pci","parentdev":"0000:01:00.0"}]
== ethtool -i eth0
driver: igb
bus-info: 0000:01:00.0
supports-test: yes
== ethtool -i lo
Cannot get driver information: Operation not supported
== devlink dev -j
{"dev":{"pci/0000:01:00.0":{},"pci/0000:01:00.1":{}}}
== devlink port -j
{"port":{}}
== devlink dev eswitch show pci/0000:01:00.0 -j
{"dev":{"pci/0000:01:00.0":{"mode":"legacy"}}}
== devlink dev eswitch show pci/0000:01:00.1 -j
{"dev":{"pci/0000:01:00.1":{"mode":"switchdev"}}}
== vdpa dev config show -j
== rdma link -j
[]
`

const nic = "sys/devices/pci0000:00/0000:01:00.0"

// tarball packs files ("name", "content"), links ("name -> target", "") and
// directories ("name/", "").
func tarball(t *testing.T, pairs ...string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for ; len(pairs) > 0; pairs = pairs[2:] {
		h := &tar.Header{Name: pairs[0], Mode: 0o444, Typeflag: tar.TypeReg, Size: int64(len(pairs[1]))}
		if name, target, ok := strings.Cut(pairs[0], " -> "); ok {
			h = &tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
		} else if strings.HasSuffix(pairs[0], "/") {
			h.Typeflag = tar.TypeDir
		} else if strings.HasSuffix(pairs[0], "_msix_count") {
			h.Mode = 0o200
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(pairs[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

const want = `tiny: QEMU q35, one NIC, Linux 6.12.1+deb13-amd64
-- netlink/devlink-eswitch.json --
{"dev":{
"pci/0000:01:00.0":{"mode":"legacy"},
"pci/0000:01:00.1":{"mode":"switchdev"}
}}
-- netlink/devlink-port.json --
{"port":{
}}
-- netlink/ethtool.json --
{
"eth0":"0000:01:00.0"
}
-- netlink/ip-link.json --
[
{"ifindex":2,"ifname":"eth0","parentbus":"pci","parentdev":"0000:01:00.0"}
]
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/bus/pci/drivers/igb/ --
-- sys/bus/vdpa/devices/vdpa0 -> ../../../devices/vdpa0 --
-- sys/class/net/eth0 -> ../../devices/pci0000:00/0000:01:00.0/net/eth0 --
-- sys/devices/pci0000:00/0000:01:00.0/class --
0x020000
-- sys/devices/pci0000:00/0000:01:00.0/driver -> ../../../bus/pci/drivers/igb --
-- sys/devices/pci0000:00/0000:01:00.0/infiniband/ --
-- sys/devices/pci0000:00/0000:01:00.0/iommu_group -> ../../../kernel/iommu_groups/8 --
-- sys/devices/pci0000:00/0000:01:00.0/net/eth0/ifindex --
2
-- sys/devices/pci0000:00/0000:01:00.0/net/eth0/phys_switch_id !EOPNOTSUPP --
-- sys/devices/pci0000:00/0000:01:00.0/net/eth0/subsystem -> ../../../../../class/net --
-- sys/devices/pci0000:00/0000:01:00.0/subsystem -> ../../../bus/pci --
-- sys/devices/vdpa0/subsystem -> ../../bus/vdpa --
-- sys/devices/vdpa0/vhost-vdpa-0/dev --
244:0
-- sys/kernel/iommu_groups/8/devices/0000:01:00.0 -> ../../../../devices/pci0000:00/0000:01:00.0 --
`

func TestOnlyWhatDiscoveryNeedsIsKept(t *testing.T) {
	ar, err := convert(tarball(t,
		"NOTE.txt", note, "UNREADABLE.txt", unread, "netlink.txt", commands,
		nic+"/", "", nic+"/net/", "", nic+"/net/eth0/", "", nic+"/infiniband/", "",
		nic+"/class", "0x020000\n", nic+"/irq", "11\n", nic+"/sriov_vf_msix_count", "",
		nic+"/subsystem -> ../../../bus/pci", "", nic+"/firmware_node -> ../../LNXSYSTM:00", "",
		nic+"/driver -> ../../../bus/pci/drivers/igb", "",
		nic+"/iommu_group -> ../../../kernel/iommu_groups/8", "",
		nic+"/net/eth0/ifindex", "2\n", nic+"/net/eth0/mtu", "1500\n",
		nic+"/net/eth0/subsystem -> ../../../../../class/net", "",
		"sys/devices/pci0000:00/0000:00:1f.2/class", "0x010601\n",
		"sys/devices/pci0000:00/0000:00:1f.2/subsystem -> ../../../bus/pci", "",
		"sys/devices/pci0000:00/0000:00:1f.2/virtio0/subsystem -> ../../../../bus/virtio", "",
		"sys/devices/vdpa0/subsystem -> ../../bus/vdpa", "", "sys/devices/vdpa0/vhost-vdpa-0/dev", "244:0\n",
	), "")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(txtar.Format(ar)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	h, err := hosttxt.Parse(txtar.Format(ar))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Stat(h.Sys(), "class/net/eth0/subsystem/eth0/ifindex"); err != nil {
		t.Error(err)
	}
}

func TestScenarioCanBeGiven(t *testing.T) {
	ar, err := convert(tarball(t, "NOTE.txt", note), "two NICs")
	if err != nil || !strings.Contains(string(ar.Comment), "two NICs, Linux") {
		t.Errorf("%v, %v", ar, err)
	}
}

func TestBrokenCapturesAreRefused(t *testing.T) {
	for name, pairs := range map[string][]string{
		"no note":       {"netlink.txt", commands},
		"unknown error": {"NOTE.txt", note, "UNREADABLE.txt", "/sys/a\tread /sys/a: no such luck\n"},
		"no error":      {"NOTE.txt", note, "UNREADABLE.txt", "\n"},
		"bad JSON":      {"NOTE.txt", note, "netlink.txt", "== devlink port -j\n{\n"},
	} {
		if ar, err := convert(tarball(t, pairs...), ""); err == nil {
			t.Errorf("%s: no error, but %v", name, ar)
		}
	}
	if _, err := convert(strings.NewReader("text"), ""); err == nil {
		t.Error("not a tar.gz: no error")
	}
}

func TestMachineThatIsNoEmulatorIsNotCalledOne(t *testing.T) {
	ar, err := convert(tarball(t, "NOTE.txt", "snapshot: rack7\nguest kernel: 6.1.0 #1\nscenario: ConnectX-6\n"), "")
	if want := "rack7: ConnectX-6, Linux 6.1.0\n"; err != nil || string(ar.Comment) != want {
		t.Errorf("%q, %v; want %q", ar.Comment, err, want)
	}
}
