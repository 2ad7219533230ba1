package linkhost_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// text formats the non-zero fields of an interface.
func text(i *link.Interface) string {
	words := []string{i.Name, fmt.Sprint(i.Index), i.MAC.String(), fmt.Sprint(i.MTU)}
	for _, w := range [][2]string{{"kind", i.Kind}, {"bus", i.Bus}, {"parent", i.Parent}, {"bus-info", i.BusInfo}, {"port", i.PortName}} {
		if w[1] != "" {
			words = append(words, w[0]+"="+w[1])
		}
	}
	if i.Child {
		words = append(words, "child")
	}
	if i.Lower != nil {
		words = append(words, "on", text(i.Lower))
	}
	return strings.Join(words, " ")
}

// describe formats all interfaces and vDPA devices of a captured host. It fails the test if the parent of an interface
// is different in the captured sysfs.
func describe(t *testing.T, file *capturefile.Host) string {
	t.Helper()
	h, err := linkhost.New(file)
	difftest.Must(t, err)
	var lines []string
	macs := map[string][]string{}
	for part, netns := range map[string]string{"netlink/ip-link.json": "", "netlink/pod-ip-link.json": "/run/netns/pod"} {
		var names []struct{ Ifname string }
		if data := file.File(part); data != nil {
			difftest.Must(t, json.Unmarshal(data, &names))
		}
		for _, n := range names {
			i, err := h.Interface(netns, n.Ifname)
			difftest.Must(t, err)
			parent, err := fs.ReadLink(file.Sys(), "class/net/"+i.Name+"/device")
			if netns == "" && err == nil && i.Parent != path.Base(parent) {
				t.Errorf("%s: %+v; want parent %s", i.Name, i, parent)
			}
			lines = append(lines, fmt.Sprintf("interface %s in %q", text(&i), netns))
			if netns == "" && i.MAC != nil {
				macs[string(i.MAC)] = append(macs[string(i.MAC)], i.Name)
			}
		}
	}
	for mac, want := range macs {
		got, err := h.WithMAC([]byte(mac))
		difftest.Must(t, err)
		difftest.Equal(t, got, want)
	}
	_, modeErr := h.Mode("0000:ff:00.0")
	_, portErr := h.Ports("0000:ff:00.0")
	difftest.Is(t, modeErr, syscall.ENODEV)
	difftest.Is(t, portErr, syscall.ENODEV)
	vdpas, _ := fs.Glob(file.Sys(), "bus/vdpa/devices/*")
	for _, at := range vdpas {
		mac, ok, err := h.VDPAMAC(path.Base(at))
		if err != nil || ok != (mac != nil) {
			t.Errorf("%s: %v, %v, %v", at, mac, ok, err)
		}
		lines = append(lines, fmt.Sprintf("vdpa %s %s", path.Base(at), mac))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func TestKernelReadsAllInterfacesOfCaptures(t *testing.T) {
	got := &txtar.Archive{Comment: []byte("The interfaces and vDPA devices of the captured hosts.\n")}
	for _, name := range capturetest.Described(t) {
		got.Files = append(got.Files, txtar.File{Name: name + ".txtar", Data: []byte(describe(t, capturetest.Load(t, name)))})
	}
	goldentest.File(t, "testdata/hosts.txtar", string(txtar.Format(got)))
}

func parse(t *testing.T, parts string) *linkhost.Kernel {
	t.Helper()
	h, err := capturefile.Parse([]byte("a host\n" + parts))
	difftest.Must(t, err)
	host, err := linkhost.New(h)
	difftest.Must(t, err)
	return host
}

func TestLowerOfStackedInterfaces(t *testing.T) {
	h := parse(t, difftest.Read(t, "testdata/stack"))
	goldentest.Lines(t, "testdata/stack.txt", func(line string) []string {
		netns, name, _ := strings.Cut(line, " ")
		got, err := h.Interface(strings.Trim(netns, "-"), name)
		difftest.Must(t, err)
		return []string{text(&got)}
	})
	for _, netns := range []string{"", "pod"} {
		_, err := h.Interface(netns, "net9")
		difftest.Is(t, err, link.ErrNoInterface)
	}
	_, err := parse(t, "-- netlink/ip-link.json --\n[]\n").Interface("/run/netns/pod", "net1")
	difftest.Is(t, err, link.ErrNoNetns)
	ring, err := h.Interface("", "ring")
	depth := 0
	for l := &ring; l != nil; l = l.Lower {
		depth++
	}
	if err != nil || depth != 9 {
		t.Errorf("ring: %d deep, %v", depth, err)
	}
}

func TestErrorOfNewNamesPart(t *testing.T) {
	for _, broken := range []string{
		`ip-link {"not":"a list"}`, `devlink-port {"port":{"nonsense":{}}}`, `devlink-port {"port":{"pci/0000:01:00.0/a":{}}}`, `vdpa-config []`,
	} {
		part, data, _ := strings.Cut(broken, " ")
		h, err := capturefile.Parse(fmt.Appendf(nil, "a host\n-- netlink/%s.json --\n%s\n", part, data))
		difftest.Must(t, err)
		_, err = linkhost.New(h)
		difftest.Says(t, err, part)
	}
}

func TestVDPADeviceWithoutAddressHasNone(t *testing.T) {
	h := parse(t, `-- netlink/vdpa-config.json --
{"config":{"vdpa0":{"mac":"02:00:00:00:0d:00"},"vdpa1":{"mac":"00:00:00:00:00:00"},"vdpa2":{},"vdpa3":{"mac":"none"}}}
`)
	for name, want := range map[string]string{"vdpa0": "02:00:00:00:0d:00", "vdpa1": "", "vdpa2": "", "vdpa3": "", "vdpa4": ""} {
		mac, ok, err := h.VDPAMAC(name)
		if mac.String() != want || ok != (want != "") || (err != nil) != (name == "vdpa3") {
			t.Errorf("%s: %v, %v, %v", name, mac, ok, err)
		}
	}
}

const twoPods = `-- netlink/ip-link.json --
[{"ifindex":3,"ifname":"eth0","parentbus":"virtio","parentdev":"virtio1","bus_info":"vdpa1"}]
-- netlink/netns.json --
{"/run/netns/a":[{"ifindex":4,"ifname":"net1","link_index":3,"link_netnsid":0,"linkinfo":{"info_kind":"macvlan"}}],
"/var/run/netns/b":[{"ifindex":5,"ifname":"net1","bus_info":"0000:02:00.0"}],
"/run/netns/closed":null}
`

func TestNamespacesAreFoundByPath(t *testing.T) {
	h := parse(t, twoPods)
	eth0 := link.Interface{Name: "eth0", Index: 3, Bus: "virtio", Parent: "virtio1", BusInfo: "vdpa1"}
	for netns, want := range map[string]link.Interface{
		"/run/netns/a": {Name: "net1", Index: 4, Kind: "macvlan", Lower: &eth0},
		"/run/netns/b": {Name: "net1", Index: 5, BusInfo: "0000:02:00.0"}, // /var/run is a link
	} {
		got, err := h.Interface(netns, "net1")
		difftest.Must(t, err)
		difftest.Same(t, netns, got, want)
		if !h.HasNetns(netns) {
			t.Errorf("%s does not exist", netns)
		}
	}
	_, err := h.Interface("/run/netns/c", "net1")
	difftest.Is(t, err, link.ErrNoNetns)
	difftest.Says(t, err, `"net1" in /run/netns/c`)
	_, err = h.Interface("/run/netns/closed", "net1") // a namespace that could not be entered
	difftest.Is(t, err, fs.ErrPermission)
	if !h.HasNetns("/run/netns/closed") || h.HasNetns("/run/netns/c") {
		t.Error("HasNetns: a namespace that could not be entered exists, and a namespace that was not captured does not")
	}
}
