//go:build vm

package vm_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
	plugin "devinfo-cni.io/plugins/devinfo"
)

const (
	devinfoLast  = `{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}}`
	devinfoBlind = `{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true}}`
)

// moved returns the result of host-device and devinfo, for net1 of pod1.
func moved(t *testing.T, host, pciID string) string {
	t.Helper()
	return fmt.Sprintf(`{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "mac": %q, "sandbox": "/run/netns/pod1"%s}]}`, mac(t, host), pciIDKey(pciID))
}

func pciInfo(address, pf string) string {
	return fmt.Sprintf(`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": %q, "pf-pci-address": %q}}`, address, pf)
}

// devinfo-try attaches VFs by address and by interface: see TestTryPassesOnEachDevice. These are what it does not try.
func TestDevicesAreFoundByIDAndByInterface(t *testing.T) {
	needs(t, "igb", "vdpasim", "vpvdpa")
	const (
		byID      = `{"type": "host-device", "capabilities": {"deviceID": true}}, ` + devinfoLast
		byName    = `{"type": "host-device", "device": "%s"}, ` + devinfoLast
		delegated = `{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true},
			"delegates": [{"type": "host-device"}, {"type": "tuning", "mtu": 1400}]}`
	)
	for _, test := range []struct{ name, plugins, deviceID, host, pciID, info string }{
		{"VF, two delegates", delegated, "0000:01:10.2", "enp1s0v1", "0000:01:10.2", pciInfo("0000:01:10.2", "0000:01:00.0")},
		// host-device returns no interface for it, so Multus would drop the device information.
		{"VF on vfio-pci, moved", byID, "0000:01:10.6", "", "0000:01:10.6", pciInfo("0000:01:10.6", "0000:01:00.0")},
		// The parent of a virtio NIC is virtioN, and the PF is the parent of virtioN.
		{"interface of a PF of virtio", byName, "", "enp2s0", "0000:02:00.0", `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:02:00.0"}}`},
		{"simulated vDPA on vhost", devinfoLast, "vdpa0", "", "", vdpaInfo("vdpa0", "vhost", node(t, "vdpa0"))},
		{"simulated vDPA on virtio", devinfoLast, "vdpa1", "", "", vdpaInfo("vdpa1", "virtio", virtio(t, "envdpa1"))},
		{"interface of a simulated vDPA", byName, "", "envdpa1", "", vdpaInfo("vdpa1", "virtio", virtio(t, "envdpa1"))},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newNetwork(t, "device", `[`+strings.ReplaceAll(test.plugins, "%s", test.host)+`]`).attachment("pod1", "net1", test.deviceID)
			if test.host == "" {
				a.passes(standalone(test.pciID), test.info)
				return
			}
			mtu := read(t, "/sys/class/net/"+test.host+"/mtu")
			a.passes(moved(t, test.host, test.pciID), test.info)
			if !onHost(test.host) || read(t, "/sys/class/net/"+test.host+"/mtu") != mtu {
				t.Error("the interface is not back as it was")
			}
		})
	}
}

// The test creates these interfaces itself, because no reference plugin creates all of them.
func TestUppersHaveDeviceOfVFBelow(t *testing.T) {
	needs(t, "igb")
	for _, upper := range []string{"vlan id 7", "ipvlan mode l2", "macvtap mode bridge"} {
		t.Run(upper, func(t *testing.T) {
			n := newNetwork(t, "upper", `[{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true},
				"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "/run/netns/pod1"}]}}]`)
			a := n.attachment("pod1", "net1", "")
			// igbvf requests the VLAN from the PF, and returns EINVAL if the answer takes too long. The kernel returns EBUSY
			// while it still removes the upper interface of the test before.
			eventually(t, upper, func() bool {
				out, err := exec.Command("ip", strings.Fields("link add link enp1s0v2 name net1 netns pod1 type "+upper)...).CombinedOutput()
				if err != nil && !strings.Contains(string(out), "Invalid argument") && !strings.Contains(string(out), "resource busy") {
					t.Fatalf("%v\n%s", err, out)
				}
				return err == nil
			})
			a.passes(standalone("0000:01:10.4"), pciInfo("0000:01:10.4", "0000:01:00.0"))
		})
	}
}

// devinfo is the plugin as cmd/devinfo assembles it. No emulated PCI device has a switch, so netdevsim is the switch
// of igb's first PF. /sys, the VFs and devlink are real, but devinfo requests netdevsim/netdevsim1 instead of
// pci/0000:01:00.0.
func devinfo() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	sys, err := sysfs.Open("/sys")
	if err != nil {
		log.Error("no /sys", "error", err)
		return 1
	}
	bootID, err := journal.BootID()
	if err != nil {
		log.Error("no boot ID", "error", err)
		return 1
	}
	handle := link.Handle{Bus: "netdevsim", Device: "netdevsim1"}
	eswitch := link.Eswitch{
		Sys:   withoutInterfaces{sys.Files()},
		Mode:  func(string) (string, error) { return handle.EswitchMode() },
		Ports: func(string) ([]link.PortRecord, error) { return handle.Ports() },
	}
	node, nodeErr := config.LoadNode(os.Getenv("DEVINFO_NODE_CONFIG"))
	h := plugin.NewHost(node, discovery.Finder{Sys: sys, Interfaces: link.NewKernel(sys.Files()), Eswitches: eswitch}, bootID, os.Stdout, log)
	h.NodeError, h.Within = nodeErr, os.Getenv(cleanup.WithinEnv)
	return plugin.Run(h, os.Getenv, os.Stdin, os.Stderr)
}

// withoutInterfaces hides the interfaces of PCI devices. They have no phys_switch_id, so the PF would be in legacy mode.
type withoutInterfaces struct{ fs.FS }

func (w withoutInterfaces) Open(name string) (fs.File, error) {
	if ok, _ := path.Match("bus/pci/devices/*/net", name); ok {
		return nil, fs.ErrNotExist
	}
	return w.FS.Open(name)
}

// withSwitch returns a directory with that program, to be first in CNI_PATH.
func withSwitch(t *testing.T) (dir string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	dir = t.TempDir()
	must(t, os.Symlink(self, dir+"/devinfo"))
	return dir
}

// represented attaches a VF of the first PF by number, and compares its device-info file. ADD and CHECK must print the
// warning; "" = none.
func represented(t *testing.T, n int, want, warning string) {
	t.Helper()
	host, vf := fmt.Sprint("enp1s0v", n), fmt.Sprint("0000:01:10.", 2*n)
	t.Run(host, func(t *testing.T) {
		n := newNetwork(t, "switch", `[{"type": "host-device", "capabilities": {"deviceID": true}}, `+devinfoLast+`]`)
		n.cni = libcni.NewCNIConfigWithCacheDir([]string{withSwitch(t), plugins}, t.TempDir(), n.exec())
		n.attachment("pod1", "net1", vf).warns(moved(t, host, vf), want)
		var lines []string
		for line := range strings.Lines(n.warnings()) {
			message, _, _ := strings.Cut(strings.TrimPrefix(line, `level=WARN msg="`), `" attachment=`)
			lines = append(lines, message)
		}
		if lines = slices.Compact(lines); strings.Join(lines, "\n") != warning {
			t.Errorf("warnings %q, want %q", lines, warning)
		}
	})
}

func representedInfo(address, representor string) string {
	return fmt.Sprintf(`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": %q, "pf-pci-address": "0000:01:00.0", "representor-device": %q}}`, address, representor)
}

// The third VF has no representor.
func TestVFHasRepresentorOfItsNumber(t *testing.T) {
	needs(t, "igb", "nsim")
	represented(t, 0, representedInfo("0000:01:10.0", "eni1npf0vf0"), "")
	represented(t, 1, representedInfo("0000:01:10.2", "eni1npf0vf1"), "")
	represented(t, 2, pciInfo("0000:01:10.4", "0000:01:00.0"),
		"the PCI function 0000:01:10.4: 0000:01:00.0 is in switchdev mode, but has no representor of it in this network namespace")
}

// In legacy mode netdevsim removes its representors, like a NIC.
func TestLegacyModeHasNoRepresentors(t *testing.T) {
	needs(t, "igb", "nsim")
	run(t, "devlink", "dev", "eswitch", "set", "netdevsim/netdevsim1", "mode", "legacy")
	t.Cleanup(func() {
		run(t, "devlink", "dev", "eswitch", "set", "netdevsim/netdevsim1", "mode", "switchdev")
		nets, _ := filepath.Glob("/sys/bus/netdevsim/devices/netdevsim1/net/*")
		for _, net := range nets {
			run(t, "ip", "link", "set", filepath.Base(net), "name", "eni1n"+read(t, net+"/phys_port_name"))
		}
	})
	represented(t, 0, pciInfo("0000:01:10.0", "0000:01:00.0"), "")
}
