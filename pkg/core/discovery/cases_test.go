package discovery_test

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// testCase parses a test case such as "mlx5-vdpa deviceID=vdpa4 file=pci:0000:65:00.4 # comment". The first
// word is the host, or the driver and the number of ports of a card: mlx4_core*2. The other words set sources: deviceID, runtimeConfig.deviceID, pciBusID, pciID, socket,
// declared and file. The values of declared and file are a type, a colon, and the name of the device; "@"
// instead of the colon gives only the pci-address of a vDPA device. The remaining words are:
//
//	pod=net1   the interface in the pod's network namespace
//	netns=[…]  the interfaces in that namespace, without blanks, in place of the captured ones
//	less=eth0  this interface is not on the host
//	hostnet    the pod is in the host's network namespace
//	old        the kernel is older than 5.14
//	silent     the driver does not report ethtool's bus-info
//	nofollow   followLower is off
//	parent     subfunctionParent is on
//	EIO=path   this path below /sys cannot be read
func testCase(t testing.TB, text string) (*discovery.Finder, discovery.Target) {
	t.Helper()
	text, _, _ = strings.Cut(text, " #")
	words := strings.Fields(text)
	target := discovery.Target{FollowLower: true}
	host, netns, hostnet, silent, broken := hostText(t, words[0]), "", false, false, ""
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "declared":
			target.Declared = described(t, value)
		case "file":
			target.Existing = described(t, value)
		case "pciID":
			target.PCIID = value
		case "socket":
			target.SocketPath = value
		case "pod":
			target.Netns, target.IfName = pod, value
		case "netns":
			netns = value
		case "less":
			host = capturetest.Without(host, value)
		case "hostnet":
			hostnet = true
		case "old":
			host = parents.ReplaceAll(host, nil)
		case "nofollow":
			target.FollowLower = false
		case "parent":
			target.SubfunctionParent = true
		case "silent":
			silent = true
		case "EIO":
			broken = value
		case "deviceID", "runtimeConfig.deviceID", "pciBusID":
			target.DeviceIDs = append(target.DeviceIDs, config.NamedID{Key: key, ID: value})
		default:
			t.Fatalf("%s: %q is not a known word", text, word)
		}
	}
	f := on(t, parse(t, host))
	if netns != "" {
		f.Interfaces = on(t, parse(t, []byte("made up\n-- netlink/pod-ip-link.json --\n"+netns+"\n"))).Interfaces
	}
	f.Sys = sysfs.New(capturetest.Tree{FS: f.Sys.Files(), BeforeCall: func(name string) error {
		if name == broken {
			return syscall.EIO
		}
		return nil
	}})
	if hostnet {
		f.Interfaces = hostNetwork{f.Interfaces}
	}
	if silent {
		f.Interfaces = withoutBusInfo{f.Interfaces}
	}
	return f, target
}

// described returns the description in a word such as "pci:0000:65:00.4".
func described(t testing.TB, text string) *devinfo.Info {
	typ, device, _ := strings.Cut(text, ":")
	key := map[string]string{"pci": "pci-address", "vdpa": "parent-device"}[typ]
	if function, address, ok := strings.Cut(text, "@"); ok {
		typ, device, key = function, address, "pci-address"
	}
	switch {
	case device == "":
		return info(t, `{"type": "`+typ+`"}`)
	case key == "":
		key = "path"
	}
	return info(t, `{"type": "`+typ+`", "`+typ+`": {"`+key+`": "`+device+`"}}`)
}

// withoutBusInfo is a driver that does not report ethtool's bus-info.
type withoutBusInfo struct{ discovery.Interfaces }

func (w withoutBusInfo) Interface(netns, name string) (link.Interface, error) {
	i, err := w.Interfaces.Interface(netns, name)
	i.BusInfo = ""
	return i, err
}

// Each file of the archive is a test case with the output of show. If a read fails, Find says so, or finds the same.
func TestFindReturnsExpectedResults(t *testing.T) {
	goldentest.Archives(t, "testdata/cases*.txtar", func(t *testing.T, archive *txtar.Archive) {
		for n := range archive.Files {
			q := &archive.Files[n]
			f, target := testCase(t, q.Name)
			device, err := f.Find(target)
			if err != nil && strings.Contains(q.Name, " EIO=") && !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: %v is not EIO", q.Name, err)
			}
			good := show(t, device, err)
			goldentest.Section(t, q, strings.TrimPrefix(good+"\n", "\n"))
			capturetest.EachFailure(f.Sys.Files(), func(sys fs.FS, failed *string) {
				again := *f
				again.Sys = sysfs.New(sys)
				device, err := again.Find(target)
				if got := show(t, device, err); got != good && !strings.Contains(got, "input/output error") {
					t.Errorf("%s: %s is unreadable, and without a word of that Find says\n%s", q.Name, *failed, got)
				}
			})
		}
	})
}

// Interfaces of several pods may have one name, so a name alone does not bind an RDMA device to a pod's interface.
func TestRDMADeviceOfAnotherPodIsNotTaken(t *testing.T) {
	const guid = "0016:3eff:fe0a:0008"
	const bound = "pci.rdma-device erdma_2 < /sys/class/infiniband/erdma_2/ports/1/gid_attrs/ndevs/0\n"
	const unclear = "\nwarning: interface net1: cannot tell whether the RDMA device erdma_2 is bound to it or to an interface of that name in another network namespace; declare rdma-device in deviceInfo"
	mac, other := net.HardwareAddr{2, 0x16, 0x3e, 0x0a, 0, 8}, net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for _, test := range []struct {
		name, guid     string
		mac, permanent net.HardwareAddr
		rdma, warning  string
	}{
		{"net1", guid, mac, mac, bound, ""},
		{"net1", guid, other, mac, bound, ""},
		{"net1", guid, other, other, "", ""},
		{"eth7", guid, mac, mac, "", ""},
		{"net1", "b8ce:f603:0003:a5b8", mac, mac, "", unclear},
		{"net1", "", mac, mac, "", unclear},
	} {
		f := on(t, parse(t, bytes.ReplaceAll(capturetest.Text(t, "erdma"), []byte(guid), []byte(test.guid))))
		f.Interfaces = interfaces{"net1": {Name: test.name, Bus: "virtio", Parent: "virtio5", MAC: test.mac, PermMAC: test.permanent}}
		find(t, f, inPod("net1"), "pci.pci-address 0000:00:08.0 < interface "+test.name+" (netlink)\n"+test.rdma+"in netns\nown"+test.warning)
	}
	for reads, want := range map[unreadable]string{
		{err: link.ErrNoInterface}: "", // it has just moved to a pod
		{err: syscall.EIO}: "pci.rdma-device erdma_0 < /sys/class/infiniband/erdma_0/ports/1/gid_attrs/ndevs/0\n" +
			"warning: the PCI function 0000:00:06.0: RDMA devices: input/output error",
	} {
		f := on(t, load(t, "erdma"))
		f.Interfaces = reads
		find(t, f, byID("0000:00:06.0"), "pci.pci-address 0000:00:06.0 < deviceID\n"+want)
	}
}

// unreadable fails to read the interfaces of the host.
type unreadable struct {
	discovery.Interfaces
	err error
}

func (u unreadable) Interface(string, string) (link.Interface, error) { return link.Interface{}, u.err }

// The description of a device that was found must lead to the same device again, and sources in conflict must
// name two devices.
func FuzzDeviceIDs(f *testing.F) {
	hosts := []*discovery.Finder{on(f, load(f, "mlx5-vdpa")), on(f, load(f, "mlx5-switchdev")), on(f, load(f, "vdpa-sim"))}
	for _, ids := range [][2]string{
		{"0000:65:00.4", "vdpa4"}, {"mlx5_core.sf.2", "0000:65:00.0"}, {"vdpa:0000:65:00.3", "0000:65:00.3"}, {"", "../../x"},
		{"mlx5_core.sf.4", ""}, {"vdpa0", "vdpa1"}, {"gpu-1", "0000:03:00.2"}, {"0000:99:00.0", "0000:03:00.2"},
	} {
		for n := range hosts {
			f.Add(ids[0], ids[1], uint8(n), true)
		}
	}
	f.Fuzz(func(t *testing.T, a, b string, host uint8, parent bool) {
		finder := hosts[int(host)%len(hosts)]
		target := discovery.Target{DeviceIDs: []config.NamedID{{Key: "deviceID", ID: a}, {Key: "pciBusID", ID: b}}, SubfunctionParent: parent}
		device, err := finder.Find(target)
		if err != nil {
			if conflict := difftest.As[*discovery.ConflictError](t, err); conflict.DeviceA == conflict.DeviceB {
				t.Errorf("%q, %q: %v", a, b, err)
			}
			return
		}
		text := show(t, device, nil) // also checks that Info and Facts agree
		difftest.Same(t, "without an interface, it is one, and shared: "+text, []bool{device.IsInterface, device.Shared}, []bool{false, false})
		if device.Info == nil {
			return
		}
		found := string(device.Info.Encode())
		target.Existing = info(t, found)
		difftest.Equal(t, string(target.Existing.Encode()), found)
		again, err := finder.Find(target)
		difftest.Must(t, err)
		difftest.Same(t, "with its file", string(again.Info.Encode()), found)
	})
}
