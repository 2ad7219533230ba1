// Package demo_test shows the plugin's work from ADD to DEL with the real programs: cnitool as the runtime, reference
// plugins, and first the network card of this machine. It also checks the results that it shows.
//
//	make demo
//
// It runs in its own namespaces, so it leaves nothing behind. Those of an ordinary user do not have the machine's card:
// then macvlan is on a veth, and the device comes from a captured host.
package demo_test

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

const (
	pod      = "/run/netns/pod"
	ifName   = "net1"
	nets     = "/run/net.d" // networks and the replacement plugin
	infos    = "/run/k8s.cni.cncf.io/devinfo/cni"
	stateDir = "/run/state"
	nodeFile = "/run/node.json"
)

// userspace replaces userspace-cni. It has no dataplane, and its result has no interface.
const userspace = `#!/bin/sh
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.1.0"}'
`

// containerID is the ID that cnitool generates for the pod.
var containerID = fmt.Sprintf("cnitool-%.10x", sha512.Sum512([]byte(pod)))

// A scene is one attachment, from ADD to DEL.
type scene struct {
	title, about string
	host         string // captured host with the /sys of the scene; "" = this machine
	network      string
	master       string // of macvlan in the network
	deviceID     string // as Multus passes it
	auto         bool   // the runtime passes no path
	device       string // which the file must name
}

var scenes = []scene{{
	title: "A VF bound to vfio-pci: standalone",
	about: `For a DPDK application or a VM this node has no interface to find it by. Its
address comes from the runtime, as Multus passes it on from the device plugin.
The VF is one of a captured host (testdata/hosts/igb-sriov.txtar).`,
	host: "igb-sriov", network: "vfio", deviceID: "0000:01:10.6",
	device: `"pci-address": "0000:01:10.6"`,
}, {
	title: "A vDPA device",
	about: `The VF carries a vDPA device on vhost_vdpa: that is what the workload is to
open, and so the type is vdpa (testdata/hosts/vdpa-vf.txtar).`,
	host: "vdpa-vf", network: "vdpa", deviceID: "0000:02:00.1",
	device: "/dev/vhost-vdpa-0",
}, {
	title: "vhost-user: delegating to userspace-cni",
	about: `A socket is not to be found, so it is declared; the placeholders spell the
path that userspace-cni gives it. devinfo runs userspace-cni itself; here it is
a stand-in that only prints a result.`,
	network: "vhostuser",
	device:  "/var/lib/cni/usrspcni/" + containerID[:12] + "/" + containerID[:12] + "-net1",
}, {
	title:   "memif, without Multus",
	about:   `This runtime passes no path for the file, so "auto" picks the usual one.`,
	network: "memif", auto: true,
	device: "/run/vpp/memif-memif-net1.sock",
}}

var plugin string // path of the executable

func TestMain(m *testing.M) { undertest.Temp(m) }

func TestDemo(t *testing.T) {
	plugin = undertest.Plugin(t)
	linktest.Run(t, func(t *testing.T) {
		difftest.Must(t, unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, "mode=0755"), linktest.MakeNetns(pod))
		difftest.Write(t, nets+"/userspace", userspace, 0o755)
		first := scene{network: "mynet", title: "The main job: chained after the plugin that makes the interface"}
		machine := fmt.Sprintf("/proc/%d/ns/net", os.Getppid())
		err := linktest.InNetns(machine, func() (err error) { // an ordinary user may not enter it
			var address string
			if first.master, address, err = card(); first.master == "" {
				return err
			}
			first.about = fmt.Sprintf(`macvlan makes net1 in the pod, on %s, the network card of this machine;
devinfo finds the card below it and writes down its PCI address.`, first.master)
			first.device = address
			first.play(t, 1)
			return nil
		})
		if first.master == "" {
			t.Logf("without a network card: %v", err)
			first.about = `net1 is a macvlan on a veth, and stands for the interface of the VF 0000:01:10.0
of a captured host (testdata/hosts/igb-sriov.txtar).`
			first.host, first.deviceID, first.master = "igb-sriov", "0000:01:10.0", "demo0"
			first.device = first.deviceID
			linktest.AddVeth(t, first.master, "demo1", linktest.NewNetns(t))
			first.play(t, 1)
		}
		for n, s := range scenes {
			s.play(t, n+2)
		}
	})
}

// card returns the interface of the default route and its PCI function; "" = there is none. It searches sysfs by itself,
// because its answer is compared with the plugin's.
func card() (name, address string, err error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() || r.LinkIndex == 0 {
			continue
		}
		l, err := netlink.LinkByIndex(r.LinkIndex)
		if err != nil {
			return "", "", err
		}
		at, _ := filepath.EvalSymlinks("/sys/class/net/" + l.Attrs().Name + "/device") // fails for a device of software
		for _, part := range slices.Backward(strings.Split(at, "/")) {
			if _, err := pci.Parse(part); err == nil {
				return l.Attrs().Name, part, nil
			}
		}
	}
	return "", "", err
}

// play runs one scene, and checks that nothing of it is left.
func (s scene) play(t *testing.T, number int) {
	t.Helper()
	settings := config.DefaultNode()
	settings.DeviceInfoDir, settings.StateDir = infos, stateDir
	if s.host != "" {
		settings.Sysfs = "/run/sys-" + s.network
		undertest.Sys(t, s.host, settings.Sysfs)
	}
	text, err := json.Marshal(settings)
	difftest.Must(t, err)
	difftest.Write(t, nodeFile, string(text), 0o644)
	conflist := strings.Replace(difftest.Read(t, "networks/"+s.network+".conflist"), "CARD", s.master, 1)
	difftest.Write(t, nets+"/"+s.network+".conflist", conflist, 0o644)
	command := "$ CNI_IFNAME=" + ifName + " CAP_ARGS='" + s.capArgs() + "' cnitool add " + s.network + " " + pod
	fmt.Printf("%s\n%d. %s\n\n%s\n\nnetwork %s:\n%s\n%s\n", strings.Repeat("─", 78), number, s.title, s.about, s.network, conflist, command)
	result := s.cnitool(t, "add")
	file := difftest.Read(t, s.path())
	fmt.Printf("%s\n%s:\n%s\n", result, s.path(), file)

	info, err := devinfo.Parse([]byte(file))
	difftest.Must(t, err, info.Validate().Err())
	difftest.Contains(t, file, s.device)
	s.cnitool(t, "check")
	s.cnitool(t, "del")
	difftest.Same(t, s.title+": left after DEL", difftest.Files(t, infos, stateDir, "/var/lib/cni/results"), []string(nil))
	if !t.Failed() {
		fmt.Printf("$ cnitool check, cnitool del\nThe file names the device, CHECK agrees, and DEL has left nothing.\n\n")
	}
}

// path returns the expected path of the device-info file.
func (s scene) path() string {
	if s.auto {
		return infos + "/" + s.network + "-" + containerID + "_" + ifName
	}
	return infos + "/" + s.network + "_" + ifName // the name does not matter
}

// capArgs returns the runtimeConfig that the runtime passes on.
func (s scene) capArgs() string {
	switch {
	case s.auto:
		return ""
	case s.deviceID == "":
		return fmt.Sprintf(`{"CNIDeviceInfoFile": %q}`, s.path())
	}
	return fmt.Sprintf(`{"CNIDeviceInfoFile": %q, "deviceID": %q}`, s.path(), s.deviceID)
}

// cnitool runs one verb.
func (s scene) cnitool(t *testing.T, verb string) string {
	t.Helper()
	bin := undertest.Peers(t, "cnitool", "macvlan")
	var out, log bytes.Buffer
	cmd := exec.Command(bin+"/cnitool", verb, s.network, pod)
	cmd.Env = []string{
		"CNI_PATH=" + filepath.Dir(plugin) + ":" + bin + ":" + nets, "NETCONFPATH=" + nets, "CNI_IFNAME=" + ifName,
		"DEVINFO_NODE_CONFIG=" + nodeFile, "CAP_ARGS=" + s.capArgs(), "PATH=" + os.Getenv("PATH"),
	}
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("cnitool %s: %v: %s", verb, err, &log)
	}
	fmt.Print(log.String())
	return out.String()
}
