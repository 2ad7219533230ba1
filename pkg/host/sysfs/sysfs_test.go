package sysfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// load returns the capture of a host.
func load(t *testing.T, name string) string { return string(capturetest.Text(t, name)) }

func parse(t *testing.T, capture string) *capturefile.Host {
	t.Helper()
	h, err := capturefile.Parse([]byte(capture))
	difftest.Must(t, err)
	return h
}

// refused matches attributes whose read fails. Such hosts cannot be unpacked to disk, because plain files cannot
// fail that way.
var refused = regexp.MustCompile(`(?m)^-- .* !E[A-Z]+ --\n`)

// each runs f twice on a captured or made-up host: on its text with New, and on files on the disk with Open.
func each(t *testing.T, capture string, f func(t *testing.T, sys *sysfs.FS)) {
	t.Helper()
	t.Run("text", func(t *testing.T) { f(t, sysfs.New(parse(t, capture).Sys())) })
	t.Run("disk", func(t *testing.T) {
		dir := t.TempDir()
		difftest.Must(t, parse(t, refused.ReplaceAllString(capture, "")).Unpack(dir))
		sys, err := sysfs.Open(dir)
		difftest.Must(t, err)
		f(t, sys)
	})
}

func addr(t *testing.T, s string) pci.Address {
	t.Helper()
	a, err := pci.Parse(s)
	difftest.Must(t, err)
	return a
}

// The second host has none of these buses.
func TestInvalidDeviceNamesAreAbsent(t *testing.T) {
	for _, host := range []string{"mlx5-vdpa", "i40e"} {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			for _, name := range []string{
				"", ".", "..", "/", "../vdpa", "devices/vdpa4", "vdpa4/", "/vdpa4", "../../vdpa/devices/vdpa4", "vdpa4/..", "0000:09:00.0", "ffffffff:ff:1f.7",
				"\x00", "a\x00b", "\xff", "vdpa", "nothing", strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 5000),
				"../../pci/devices/0000:65:00.2", "virtio7/../virtio7", // these paths lead to existing directories that are not virtio devices
			} {
				_, isAux, e1 := sys.Auxiliary(name)
				_, isVDPA, e2 := sys.VDPA(name)
				_, isVirtio, e3 := sys.Virtio(name)
				_, hasMAC, e4 := sys.VirtioMAC(name)
				_, isPCI, e5 := sys.Inode("pci", name)
				line, e6 := sys.Lineage(name)
				_, isNetdev, e7 := sys.Netdev(name)
				if err := errors.Join(e1, e2, e3, e4, e5, e6, e7); isAux || isVDPA || isVirtio || hasMAC || isPCI || isNetdev || len(line) > 0 || err != nil {
					t.Errorf("%.20q: %v %v %v %v %v %v %v, %v", name, isAux, isVDPA, isVirtio, hasMAC, isPCI, isNetdev, line, err)
				}
			}
			if fn, ok, err := sys.PCI(pci.Address{}); ok || err != nil {
				t.Errorf("%+v, %v", fn, err)
			}
		})
	}
}

func TestAbsentErrorsMeanMissingValue(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, syscall.ENOENT: true, syscall.ENOTDIR: true, syscall.ENODEV: true, syscall.EINVAL: true, syscall.EOPNOTSUPP: true,
		fs.ErrNotExist: true, syscall.EIO: false, syscall.EACCES: false, syscall.EPERM: false, syscall.ELOOP: false,
		errors.New("made up"): false,
	} {
		difftest.Same(t, fmt.Sprint(err), sysfs.Absent(err), want)
		if got := sysfs.Absent(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("wrapped %v: %v", err, got)
		}
	}
}

func TestOpenFailsUnlessPathIsDirectory(t *testing.T) {
	_, err := sysfs.Open(t.TempDir() + "/sys")
	difftest.Is(t, err, fs.ErrNotExist)
	_, err = sysfs.Open("/dev/null")
	difftest.Is(t, err, syscall.ENOTDIR)
}

func TestInodeIsThatOfDirectory(t *testing.T) {
	dir := t.TempDir()
	difftest.Must(t, os.MkdirAll(dir+"/bus/pci/devices", 0o700), os.MkdirAll(dir+"/devices/0000:01:00.0", 0o700),
		os.Symlink("../../../devices/0000:01:00.0", dir+"/bus/pci/devices/0000:01:00.0"))
	info, err := os.Stat(dir + "/devices/0000:01:00.0")
	difftest.Must(t, err)
	sys, err := sysfs.Open(dir)
	difftest.Must(t, err)
	inode, ok, err := sys.Inode("pci", "0000:01:00.0")
	if inode != info.Sys().(*syscall.Stat_t).Ino || !ok || err != nil {
		t.Errorf("%d, %v, %v", inode, ok, err)
	}
	inode, ok, err = sysfs.New(parse(t, load(t, "igb-sriov")).Sys()).Inode("pci", "0000:01:00.0")
	if inode != 0 || !ok || err != nil {
		t.Errorf("in a capture: %d, %v, %v", inode, ok, err)
	}
}

func TestErrorNamesInvalidAttribute(t *testing.T) {
	const host = `made up
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/devices/pci0000:00/0000:01:00.0/sriov_offset --
many
-- sys/devices/pci0000:00/0000:01:00.0/numa_node --
near
-- sys/bus/auxiliary/devices/x.sf.1 -> ../../../devices/pci0000:00/0000:01:00.0/x.sf.1 --
-- sys/devices/pci0000:00/0000:01:00.0/x.sf.1/sfnum --
0x1
-- sys/bus/pci/devices/0000:01:00.1 -> ../../../devices/pci0000:00/0000:01:00.1 --
-- sys/devices/pci0000:00/0000:01:00.1/physfn -> ../parent --
`
	each(t, host, func(t *testing.T, sys *sysfs.FS) {
		_, _, offset := sys.VFIndex(addr(t, "0000:01:00.0"), addr(t, "0000:01:00.1"))
		_, _, sfnum := sys.Auxiliary("x.sf.1")
		_, _, node := sys.NUMANode(addr(t, "0000:01:00.0"))
		for name, err := range map[string]error{"numa_node": node, "sriov_offset": offset, "x.sf.1/sfnum": sfnum} {
			difftest.Says(t, err, path.Join("/sys/devices/pci0000:00/0000:01:00.0", name))
		}
		_, ok, physfn := sys.PCI(addr(t, "0000:01:00.1"))
		difftest.Says(t, physfn, `0000:01:00.1: physfn: "parent"`)
		difftest.Equal(t, ok, false)
	})
}

func TestWriterWritesOnlyExistingAttributes(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "a")
	difftest.Must(t, os.WriteFile(at, nil, 0o600))
	write := sysfs.Writer(dir)
	difftest.Must(t, write("a", "x\n"))
	difftest.Equal(t, difftest.Read(t, at), "x\n")
	difftest.Is(t, write("b", "x"), fs.ErrNotExist)
}

func TestVFIndexWorksAcrossBuses(t *testing.T) {
	const n = 1024
	sys, pf := sysfs.New(capturetest.ManyVFs(n).Sys()), addr(t, "0000:3b:00.0")
	for want := range n {
		if got, ok, err := sys.VFIndex(pf, addr(t, capturetest.VF(want))); got != want || !ok || err != nil {
			t.Fatalf("%s: %d, %v, %v; want %d", capturetest.VF(want), got, ok, err, want)
		}
	}
	if got, ok, err := sys.VFIndex(pf, addr(t, capturetest.VF(n))); ok || err != nil {
		t.Errorf("one too many: %d, %v, %v", got, ok, err)
	}
}

func TestVFIndexOfUnrelatedFunctionIsAbsent(t *testing.T) {
	for host, tests := range map[string][]struct{ why, pf, vf string }{
		"igb-sriov": {
			{"another PF's VF", "0000:01:00.0", "0000:41:10.0"},
			{"another PF's VF, before the first", "0000:41:00.0", "0000:01:10.0"},
			{"between two VFs", "0000:01:00.0", "0000:01:10.1"},
			{"behind the last VF", "0000:01:00.0", "0000:01:11.0"},
			{"same place in another domain", "0000:01:00.0", "0001:01:10.0"},
			{"PF of itself", "0000:01:00.0", "0000:01:00.0"},
			{"a VF for the PF", "0000:01:10.0", "0000:01:10.2"},
			{"PF that does not exist", "0000:07:00.0", "0000:01:10.0"},
		},
		"mlx5-legacy": {{"the other port's VF", "0000:3b:00.1", "0000:3b:00.2"}},
		"virtio-vm":   {{"VF in a machine that has no PF", "0000:00:03.0", "0000:00:05.0"}},
	} {
		each(t, load(t, host), func(t *testing.T, sys *sysfs.FS) {
			for _, test := range tests {
				if n, ok, err := sys.VFIndex(addr(t, test.pf), addr(t, test.vf)); ok || n != 0 || err != nil {
					t.Errorf("%s: %d, %v, %v", test.why, n, ok, err)
				}
			}
		})
	}
}

func TestIsSFChecksNumberAndName(t *testing.T) {
	for name, want := range map[string]bool{"ice.sf.1": true, "ice.roce.1": false, "idpf.8086.rdma.core.0": false, "sf.1": false, "sf": false} {
		difftest.Same(t, name, sysfs.Auxiliary{Name: name}.IsSF(), want)
	}
}

func TestHasDriverFindsOnlyExistingDrivers(t *testing.T) {
	each(t, difftest.Read(t, "testdata/odd/drivers.txtar"), func(t *testing.T, sys *sysfs.FS) {
		for name, want := range map[string]bool{"igb": true, "vfio-pci": false, "": false, "../igb": false} {
			if got, err := sys.HasDriver(name); err != nil || got != want {
				t.Errorf("driver %q: %v, %v", name, got, err)
			}
		}
	})
}

func TestPortsReadsAtMostSoMany(t *testing.T) {
	fsys := fstest.MapFS{"bus/pci/devices/0000:01:00.0": {Mode: fs.ModeSymlink, Data: []byte("../../../devices/0000:01:00.0")}}
	for n := range 100 {
		port := fmt.Sprintf("devices/0000:01:00.0/net/eth%d/", n)
		fsys[port+"ifindex"] = &fstest.MapFile{Data: fmt.Appendln(nil, n)}
		fsys[port+"dev_port"] = &fstest.MapFile{Data: []byte("1\n")}
	}
	sys := sysfs.New(fsys)
	for most, want := range map[int]int{sysfs.FewPorts: 8, sysfs.AllPorts: 100} {
		ports, err := sys.Ports("pci", "0000:01:00.0", most)
		if err != nil || len(ports) != want || ports[0].DevPort != 1 {
			t.Errorf("%+v, %v", ports, err)
		}
	}
}

func TestPathLeadsToInnermostDevice(t *testing.T) {
	chain := func(links int) (text string) {
		for n := range links - 1 {
			text += fmt.Sprintf("-- sys/%d/%d -> ../%d/%d --\n", links, n, links, n+1)
		}
		return text + fmt.Sprintf("-- sys/%d/%d -> ../devices/pci0000:00/0000:01:00.0/net/eth0 --\n", links, links-1)
	}
	host := `made up
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/devices/pci0000:00/0000:01:00.0/net/eth0/mtu --
1500
-- sys/devices/virtual/net/lo/mtu --
65536
-- sys/loop -> loop --
` + chain(40) + chain(41) // the kernel follows 40
	type answer struct {
		device string
		ok     bool
	}
	each(t, host, func(t *testing.T, sys *sysfs.FS) {
		for name, want := range map[string]answer{
			"/sys/devices/pci0000:00/0000:01:00.0": {"0000:01:00.0", true}, "/sys/devices/pci0000:00/0000:01:00.0/net/eth0/mtu": {"0000:01:00.0", true},
			"/sys/40/../40/0": {"0000:01:00.0", true}, "/sys/41/0": {"", false}, "/sys/loop": {"", false},
			"/sys/devices/pci0000:00/0000:01:00.0/none": {"", true}, "/sys/none": {"", true},
			"/sys/devices/virtual/net/lo": {"", true}, "/sys/bus/pci/devices": {"", false}, "/proc/sys/devices": {"", false},
		} {
			device, ok, err := sys.DeviceAt(name)
			difftest.Must(t, err)
			if got := (answer{device, ok}); got != want {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
		}
	})
	capturetest.EachFailure(parse(t, host).Sys(), func(sys fs.FS, failed *string) {
		if _, _, err := sysfs.New(sys).DeviceAt("/sys/40/0"); (err != nil) != (*failed != "") {
			t.Errorf("%q fails, and the error is %v", *failed, err)
		}
	})
}

// An interface in another network namespace may have the same name.
func TestRDMADeviceIsBoundToInterfaceOfItsGUID(t *testing.T) {
	mac, another := net.HardwareAddr{2, 3, 4, 5, 6, 7}, net.HardwareAddr{2, 3, 4, 5, 6, 8}
	for _, test := range []struct {
		guid, name    string
		macs          []net.HardwareAddr
		bound, proven bool
	}{
		{"0003:04ff:fe05:0607", "eth0", []net.HardwareAddr{another, mac}, true, true},
		{"0003:04ff:fe05:0607", "eth0", []net.HardwareAddr{another}, false, false},
		{"0003:04ff:fe05:0607", "eth1", []net.HardwareAddr{mac}, false, false},
		{"0203:0405:0607:0000", "eth0", []net.HardwareAddr{mac}, true, false},
		{"0203:0405:0607:0000", "eth1", []net.HardwareAddr{mac}, false, false},
		{"0003:04ff:fe05:06", "eth0", []net.HardwareAddr{mac[:5]}, true, false},
	} {
		bound, proven := sysfs.Apart{GUID: test.guid, RDMADevice: sysfs.RDMADevice{Netdev: "eth0"}}.BoundTo(test.name, test.macs...)
		if bound != test.bound || proven != test.proven {
			t.Errorf("%+v: got %v, %v", test, bound, proven)
		}
	}
}
