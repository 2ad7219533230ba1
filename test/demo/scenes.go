package main

import (
	"embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/test/sandbox"
)

// A scene is one attachment, from ADD to DEL.
type scene struct {
	title    string
	about    string
	host     string // captured host with the /sys of the scene; "" = this machine
	network  string
	card     string        // master of macvlan in the network
	deviceID string        // as Multus passes it
	auto     bool          // the runtime passes no path
	link     bool          // ADD creates an interface in the pod
	file     *devinfo.Info // expected device-info file
}

var scenes = []scene{{
	title: "A VF bound to vfio-pci: standalone",
	about: `For a DPDK application or a VM this node has no interface to find it by. Its
address comes from the runtime, as Multus passes it on from the device plugin.
The VF is one of a captured host (testdata/hosts/igb-sriov.txtar).`,
	host: "igb-sriov", network: "vfio", deviceID: "0000:01:10.6",
	file: pciInfo("0000:01:10.6", "0000:01:00.0"),
}, {
	title: "A vDPA device",
	about: `The VF carries a vDPA device on vhost_vdpa: that is what the workload is to
open, and so the type is vdpa (testdata/hosts/vdpa-vf.txtar).`,
	host: "vdpa-vf", network: "vdpa", deviceID: "0000:02:00.1",
	file: &devinfo.Info{Type: devinfo.TypeVDPA, Version: devinfo.SpecVersion, VDPA: &devinfo.VDPA{
		ParentDevice: "vpvdpa0", Driver: "vhost", Path: "/dev/vhost-vdpa-0", Address: "0000:02:00.1", PFAddress: "0000:02:00.0"}},
}, {
	title: "vhost-user: delegating to userspace-cni",
	about: `A socket is not to be found, so it is declared; the placeholders spell the
path that userspace-cni gives it. devinfo runs userspace-cni itself; here it is
a stand-in that only prints a result.`,
	network: "vhostuser",
	file: &devinfo.Info{Type: devinfo.TypeVhostUser, Version: devinfo.SpecVersion, VhostUser: &devinfo.VhostUser{
		Mode: "server", Path: "/var/lib/cni/usrspcni/" + containerID[:12] + "/" + containerID[:12] + "-net1"}},
}, {
	title:   "memif, without Multus",
	about:   `This runtime passes no path for the file, so "auto" picks the usual one.`,
	network: "memif", auto: true,
	file: &devinfo.Info{Type: devinfo.TypeMemif, Version: devinfo.SpecVersion, Memif: &devinfo.Memif{
		Role: "slave", Path: "/run/vpp/memif-memif-net1.sock", Mode: "ethernet"}},
}}

//go:embed networks
var networks embed.FS

func (s *scene) conflist() string {
	text, _ := networks.ReadFile("networks/" + s.network + ".conflist") // part of the program
	return strings.Replace(strings.TrimSpace(string(text)), "CARD", s.card, 1)
}

// cardScene returns the first scene: a macvlan on the machine's network card. Without a card it is on a veth in a network
// namespace of its own, and the device is a captured VF.
func cardScene(ownNet bool) (s scene, onCard bool, err error) {
	s = scene{network: "mynet", link: true, title: "The main job: chained after the plugin that makes the interface"}
	why := "An ordinary user's namespaces do not have this machine's network card"
	if !ownNet {
		card, address, err := findCard()
		if err != nil {
			return s, false, err
		}
		if card != "" {
			s.about = fmt.Sprintf(`macvlan makes net1 in the pod, on %s, the network card of this machine;
devinfo finds the card below it and writes down its PCI address.`, card)
			s.card = card
			pf, _ := os.Readlink("/sys/bus/pci/devices/" + address + "/physfn") // only a VF has one
			s.file = pciInfo(address, strings.TrimPrefix(pf, "../"))
			return s, true, nil
		}
		why = "This machine has no network card on PCI"
		if err := sandbox.Leave(); err != nil {
			return s, false, err
		}
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "demo0", Flags: net.FlagUp}, PeerName: "demo1"}
	s.about = why + `: net1 is a
macvlan on a veth, and stands for the interface of the VF 0000:01:10.0 of a
captured host (testdata/hosts/igb-sriov.txtar).`
	s.host, s.deviceID, s.card = "igb-sriov", "0000:01:10.0", veth.Name
	s.file = pciInfo("0000:01:10.0", "0000:01:00.0")
	return s, false, netlink.LinkAdd(veth)
}

func pciInfo(address, pf string) *devinfo.Info {
	return &devinfo.Info{Type: devinfo.TypePCI, Version: devinfo.SpecVersion, PCI: &devinfo.PCI{Address: address, PFAddress: pf}}
}

// findCard returns the interface of the default route, or else the first interface that is up. The interface must
// belong to a PCI function, and must not be in a bridge or bond. The search in sysfs is independent of the plugin's,
// because the two results are compared.
func findCard() (name, address string, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return "", "", err
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return "", "", err
	}
	standard := map[int]bool{}
	for _, r := range routes {
		if r.Dst == nil || r.Dst.IP.IsUnspecified() {
			standard[r.LinkIndex] = true
		}
	}
	for _, l := range links {
		a := l.Attrs()
		at := pciOf(a.Name)
		if at == "" || a.MasterIndex != 0 || a.Flags&net.FlagUp == 0 || name != "" && !standard[a.Index] {
			continue
		}
		name, address = a.Name, at
		if standard[a.Index] {
			break
		}
	}
	return name, address, nil
}

// pciOf returns the last PCI function in the path of an interface's device.
func pciOf(name string) string {
	at, err := filepath.EvalSymlinks("/sys/class/net/" + name + "/device")
	if err != nil {
		return ""
	}
	address := ""
	for part := range strings.SplitSeq(at, "/") {
		if _, err := pci.Parse(part); err == nil {
			address = part
		}
	}
	return address
}
