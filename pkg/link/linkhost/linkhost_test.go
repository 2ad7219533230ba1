package linkhost_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/linkhost"
)

const hosts = "../../../testdata/hosts/"

func load(t *testing.T, name string) *linkhost.Kernel {
	t.Helper()
	h, err := hosttxt.Load(hosts + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	host, err := linkhost.New(h)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

func mac(s string) net.HardwareAddr {
	m, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}

func TestInterfaces(t *testing.T) {
	const pod = "/run/netns/pod"
	for _, test := range []struct {
		host, netns string
		want        link.Interface
	}{
		{"mlx5-switchdev", pod, link.Interface{Name: "net1", Index: 21, MAC: mac("02:03:00:00:00:01"), MTU: 1500, Bus: "pci", Parent: "0000:03:00.3"}},
		{"mlx5-switchdev", "", link.Interface{Name: "enp3s0f0s88", Index: 24, MAC: mac("02:03:00:00:00:88"), MTU: 1500, Bus: "auxiliary", Parent: "mlx5_core.sf.4"}},
		{"mlx5-switchdev", "", link.Interface{Name: "eth6", Index: 12, MAC: mac("6e:03:00:00:00:02"), MTU: 1500, Bus: "pci", Parent: "0000:03:00.0", PortName: "pf0vf2"}},
		{"mlx5-legacy", pod, link.Interface{Name: "net1", Index: 7, MAC: mac("02:3b:00:00:00:01"), MTU: 1500, Bus: "pci", Parent: "0000:3b:00.3"}},
		{"mlx5-legacy", pod, link.Interface{Name: "net2", Index: 8, MAC: mac("4e:3b:00:00:00:08"), MTU: 1500, Kind: "macvlan",
			Lower: &link.Interface{Name: "ens1f0np0", Index: 4, MAC: mac("b8:ce:f6:3b:00:00"), MTU: 1500, Bus: "pci", Parent: "0000:3b:00.0", PortName: "p0"}}},
		{"i40e", pod, link.Interface{Name: "net1", Index: 3, MAC: mac("4e:18:00:00:00:03"), MTU: 1500, Kind: "macvlan",
			Lower: &link.Interface{Name: "eno1", Index: 2, MAC: mac("3c:fd:fe:18:00:00"), MTU: 1500, Bus: "pci", Parent: "0000:18:00.0"}}},
		{"i40e", pod, link.Interface{Name: "net2", Index: 5, MAC: mac("02:18:00:00:00:01"), MTU: 1500, Bus: "pci", Parent: "0000:18:02.1"}},
		{"i40e", "", link.Interface{Name: "veth09f3d2e1", Index: 12, MAC: mac("ee:18:00:00:00:12"), MTU: 1500, Kind: "veth"}},
		// ethtool.json has a bus-info for the host's eth0.
		{"virtio-vm", pod, link.Interface{Name: "eth0", Index: 2, MAC: mac("0a:58:0a:f4:00:09"), MTU: 1500, Kind: "veth"}},
		{"mlx5-vdpa", "", link.Interface{Name: "eth12", Index: 12, MAC: mac("02:65:00:00:00:02"), MTU: 1500, Bus: "virtio", Parent: "virtio7", BusInfo: "vdpa4"}},
		{"rxe-rdma", "", link.Interface{Name: "rveth1", Index: 12, MAC: mac("a2:51:92:fb:83:0e"), MTU: 1500, Kind: "veth"}},
	} {
		got, err := load(t, test.host).Interface(test.netns, test.want.Name)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, %v; want %+v", test.host, got, err, test.want)
		}
	}
}

func parse(t *testing.T, parts string) *linkhost.Kernel {
	t.Helper()
	h, err := hosttxt.Parse([]byte("test: from documentation: a host (as of Linux 6.12)\n" + parts))
	if err != nil {
		t.Fatal(err)
	}
	host, err := linkhost.New(h)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

const stack = `-- netlink/ip-link.json --
[{"ifindex":3,"ifname":"eth0"},
{"ifindex":4,"ifname":"eth0.7","link":"eth0","linkinfo":{"info_kind":"vlan"}},
{"ifindex":5,"ifname":"astray","link_index":3,"link_netnsid":1,"linkinfo":{"info_kind":"ipvlan"}},
{"ifindex":6,"ifname":"sit0","address":"0.0.0.0","linkinfo":{"info_kind":"sit"}},
{"ifindex":7,"ifname":"ring","link":"ring","linkinfo":{"info_kind":"vlan"}}]
-- netlink/ethtool.json --
{"eth0":"0000:02:00.0"}
-- netlink/pod-ip-link.json --
[{"ifindex":3,"ifname":"eth0"},
{"ifindex":4,"ifname":"net1","link_index":4,"link_netnsid":0,"linkinfo":{"info_kind":"macvtap"}},
{"ifindex":5,"ifname":"net2","link":"eth0","linkinfo":{"info_kind":"ipvtap"}},
{"ifindex":6,"ifname":"net3","link_index":99,"link_netnsid":0,"linkinfo":{"info_kind":"macvlan"}}]
`

func TestLowerThroughAStack(t *testing.T) {
	h := parse(t, stack)
	eth0 := &link.Interface{Name: "eth0", Index: 3, BusInfo: "0000:02:00.0"}
	for _, test := range []struct {
		netns string
		want  link.Interface
	}{
		{"pod", link.Interface{Name: "net1", Index: 4, Kind: "macvtap", Lower: &link.Interface{Name: "eth0.7", Index: 4, Kind: "vlan", Lower: eth0}}},
		{"pod", link.Interface{Name: "net2", Index: 5, Kind: "ipvtap", Lower: &link.Interface{Name: "eth0", Index: 3}}},
		{"pod", link.Interface{Name: "net3", Index: 6, Kind: "macvlan"}},
		{"", link.Interface{Name: "eth0.7", Index: 4, Kind: "vlan", Lower: eth0}},
		{"", link.Interface{Name: "astray", Index: 5, Kind: "ipvlan"}},
		{"", link.Interface{Name: "sit0", Index: 6, Kind: "sit"}},
	} {
		got, err := h.Interface(test.netns, test.want.Name)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("got %+v, %v; want %+v", got, err, test.want)
		}
	}
	ring, err := h.Interface("", "ring")
	depth := 0
	for l := &ring; l != nil; l = l.Lower {
		depth++
	}
	if err != nil || depth != 9 {
		t.Errorf("ring: %d deep, %v", depth, err)
	}
}

func TestIPoIBChild(t *testing.T) {
	h := parse(t, `-- netlink/ip-link.json --
[{"ifindex":3,"ifname":"ib0","parentbus":"pci","parentdev":"0000:05:00.0","linkinfo":{"info_kind":"ipoib"}},
{"ifindex":4,"ifname":"ib0.8001","link":"ib0","linkinfo":{"info_kind":"ipoib"},"bus_info":"0000:05:00.0"},
{"ifindex":5,"ifname":"ib0.8002","link":"ib0"}]
-- netlink/pod-ip-link.json --
[{"ifindex":6,"ifname":"net1","link_index":3,"linkinfo":{"info_kind":"ipoib"}},
{"ifindex":7,"ifname":"eth0","link_index":9,"link_netnsid":0,"linkinfo":{"info_kind":"veth"}}]
`)
	for _, i := range []struct {
		netns, name    string
		child, borrows bool
	}{
		{"", "ib0", false, false}, {"", "ib0.8001", true, true}, {"", "ib0.8002", true, true}, {"pod", "net1", true, true}, {"pod", "eth0", false, true},
	} {
		got, err := h.Interface(i.netns, i.name)
		if err != nil || got.Child != i.child || got.Borrows() != i.borrows {
			t.Errorf("%+v: %+v, %v", i, got, err)
		}
	}
}

func TestMissingInterfaceAndPod(t *testing.T) {
	if _, err := load(t, "i40e").Interface("/run/netns/pod", "net9"); !errors.Is(err, link.ErrNoInterface) {
		t.Error(err)
	}
	if _, err := load(t, "vdpa-sim").Interface("", "net9"); !errors.Is(err, link.ErrNoInterface) {
		t.Error(err)
	}
	if _, err := load(t, "vdpa-sim").Interface("/run/netns/pod", "net1"); !errors.Is(err, link.ErrNoNetns) {
		t.Error(err)
	}
}

func TestVDPAMACs(t *testing.T) {
	for host, macs := range map[string]map[string]string{
		"mlx5-vdpa": {
			"vdpa:0000:65:00.3": "02:65:00:00:00:01", "vdpa4": "02:65:00:00:00:02", "vdpa5": "02:65:00:00:00:03",
			"vdpa6": "02:65:00:00:00:10", "vdpa7": "02:65:00:00:00:11", "vdpa8": "",
		},
		"vdpa-sim":       {"vdpa0": "02:00:00:00:0d:00", "vdpa1": "02:00:00:00:0d:01"},
		"vdpa-vf":        {"vpvdpa0": "52:54:00:bb:00:01"},
		"vdpa-vf-virtio": {"vpvdpa0": "52:54:00:bb:00:01"},
		"i40e":           {"vdpa0": ""},
	} {
		h := load(t, host)
		for name, want := range macs {
			got, ok, err := h.VDPAMAC(name)
			if got.String() != want || ok != (want != "") || err != nil {
				t.Errorf("%s: %s: %v, %v, %v; want %s", host, name, got, ok, err, want)
			}
		}
	}
}

func TestSwitchdev(t *testing.T) {
	for host, pfs := range map[string]map[string]bool{
		"mlx5-switchdev": {"0000:03:00.0": true, "0000:03:00.2": false},
		"mlx5-vdpa":      {"0000:65:00.0": true},
		"mlx5-legacy":    {"0000:3b:00.0": false, "0000:3b:00.1": false},
		"i40e":           {"0000:18:00.0": false, "0000:18:00.1": false, "0000:99:00.0": false},
		"igb-sriov":      {"0000:01:00.0": false},
		"vmd":            {"10000:e1:00.0": false},
	} {
		h := load(t, host)
		for pf, want := range pfs {
			if got, err := h.Switchdev(pf); got != want || err != nil {
				t.Errorf("%s: %s: %v, %v", host, pf, got, err)
			}
		}
	}
}

var representors = []struct {
	host, pf string
	flavour  link.Flavour
	number   int
	want     string
}{
	// The interfaces pf0vf0 to pf0vf3 are another controller's.
	{"mlx5-switchdev", "0000:03:00.0", link.VF, 0, "eth4"},
	{"mlx5-switchdev", "0000:03:00.0", link.VF, 1, "eth5"},
	{"mlx5-switchdev", "0000:03:00.0", link.VF, 2, "eth6"},
	{"mlx5-switchdev", "0000:03:00.0", link.VF, 3, "eth7"}, // devlink has no name for it, sysfs does
	{"mlx5-switchdev", "0000:03:00.0", link.VF, 4, ""},
	{"mlx5-switchdev", "0000:03:00.0", link.SF, 88, "en3f0pf0sf88"},
	{"mlx5-switchdev", "0000:03:00.0", link.SF, 99, ""},
	{"mlx5-switchdev", "0000:03:00.9", link.VF, 0, "error"},
	{"mlx5-vdpa", "0000:65:00.0", link.VF, 3, "eth7"},
	{"mlx5-vdpa", "0000:65:00.0", link.SF, 10, "eth8"},
	{"mlx5-vdpa", "0000:65:00.0", link.SF, 11, "eth9"},
	{"mlx5-legacy", "0000:3b:00.0", link.VF, 0, ""},
	{"i40e", "0000:18:00.0", link.VF, 0, ""},
	{"i40e", "0000:77:00.0", link.VF, 0, ""},
}

func TestRepresentors(t *testing.T) {
	for _, r := range representors {
		got, ok, err := load(t, r.host).Representor(r.pf, r.flavour, r.number)
		if err != nil {
			got = "error"
		}
		if got != r.want || ok != (r.want != "" && r.want != "error") {
			t.Errorf("%+v: %q, %v, %v", r, got, ok, err)
		}
	}
}

func TestHostsAtTheSameTime(t *testing.T) {
	var all sync.WaitGroup
	for _, r := range representors {
		h := load(t, r.host)
		all.Go(func() {
			for range 20 {
				if got, _, err := h.Representor(r.pf, r.flavour, r.number); err == nil && got != r.want {
					t.Errorf("%+v: %q", r, got)
				}
			}
		})
	}
	all.Wait()
}

func TestEveryFixture(t *testing.T) {
	names, err := filepath.Glob(hosts + "*.txtar")
	if err != nil || len(names) < 12 {
		t.Fatalf("%d hosts, %v", len(names), err)
	}
	for _, name := range names {
		file, err := hosttxt.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		h := load(t, strings.TrimSuffix(filepath.Base(name), ".txtar"))
		devices, _ := fs.Glob(file.Sys(), "class/net/*/device")
		for _, device := range devices {
			interf := filepath.Base(filepath.Dir(device))
			i, err := h.Interface("", interf)
			parent, _ := fs.ReadLink(file.Sys(), device)
			if err != nil || i.Parent != filepath.Base(parent) || (i.BusInfo != "") != (i.Bus == "virtio") {
				t.Errorf("%s: %s: %+v, %v; want parent %s", name, interf, i, err, parent)
			}
		}
		pfs, _ := fs.Glob(file.Sys(), "bus/pci/devices/*")
		for _, pf := range pfs {
			if _, err := h.Switchdev(filepath.Base(pf)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestNewNamesTheBrokenPart(t *testing.T) {
	for part, data := range map[string]string{
		"ip-link":      `{"not":"a list"}`,
		"devlink-port": `{"port":{"nonsense":{}}}`,
		"vdpa-config":  `[]`,
	} {
		h, err := hosttxt.Parse(fmt.Appendf(nil, "a host\n-- netlink/%s.json --\n%s\n", part, data))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := linkhost.New(h); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", part, err)
		}
	}
}

const twoPods = `-- netlink/ip-link.json --
[{"ifindex":3,"ifname":"eth0","parentbus":"virtio","parentdev":"virtio1","bus_info":"vdpa1"}]
-- netlink/netns.json --
{"/run/netns/a":[{"ifindex":4,"ifname":"net1","link_index":3,"link_netnsid":0,"linkinfo":{"info_kind":"macvlan"}}],
"/run/netns/b":[{"ifindex":5,"ifname":"net1","bus_info":"0000:02:00.0"}],
"/run/netns/closed":null}
`

func TestNamespacesAreToldApartByPath(t *testing.T) {
	h := parse(t, twoPods)
	eth0 := link.Interface{Name: "eth0", Index: 3, Bus: "virtio", Parent: "virtio1", BusInfo: "vdpa1"}
	for netns, want := range map[string]link.Interface{
		"/run/netns/a": {Name: "net1", Index: 4, Kind: "macvlan", Lower: &eth0},
		"/run/netns/b": {Name: "net1", Index: 5, BusInfo: "0000:02:00.0"},
	} {
		got, err := h.Interface(netns, "net1")
		there, thereErr := h.HasNetns(netns)
		if err != nil || !reflect.DeepEqual(got, want) || !there || thereErr != nil {
			t.Errorf("%s: got %+v, %v; want %+v", netns, got, err, want)
		}
	}
	if _, err := h.Interface("/run/netns/c", "net1"); !errors.Is(err, link.ErrNoNetns) {
		t.Error(err)
	}
	if _, err := h.Interface("/run/netns/closed", "net1"); err == nil || errors.Is(err, link.ErrNoNetns) {
		t.Errorf("a namespace that could not be entered: %v", err)
	}
	if there, err := h.HasNetns("/run/netns/closed"); !there || err == nil {
		t.Errorf("a namespace that could not be entered: %v, %v", there, err)
	}
}
