//go:build vm

package vm_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
	plugin "devinfo-cni.io/plugins/devinfo"
	"devinfo-cni.io/plugins/devinfo/delegate"
)

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
		Ports: func(string) ([]*netlink.DevlinkPort, error) { return handle.Ports() },
	}
	node, nodeErr := config.LoadNode(os.Getenv("DEVINFO_NODE_CONFIG"))
	p := plugin.New(node, discovery.Finder{Sys: sys, Interfaces: link.NewKernel(sys.Files()), Eswitches: eswitch}, bootID, os.Stdout, log)
	p.NodeError = nodeErr
	d := delegate.Delegates{Within: os.Getenv(cleanup.WithinEnv), Signals: delegate.TakeSignals}
	return d.Run(p, os.Getenv, os.Stdin, os.Stderr)
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

// represented attaches a VF of the first PF by number, and compares its device-info file.
func represented(t *testing.T, n int, want string) {
	t.Helper()
	host, vf := fmt.Sprint("enp1s0v", n), fmt.Sprint("0000:01:10.", 2*n)
	t.Run(host, func(t *testing.T) {
		n := newNetwork(t, "switch", `[{"type": "host-device", "capabilities": {"deviceID": true}}, `+devinfoLast+`]`)
		n.cni = libcni.NewCNIConfigWithCacheDir([]string{withSwitch(t), plugins}, t.TempDir(), n.exec())
		n.attachment("pod1", "net1", vf).passes(moved(t, host, "net1", "/run/netns/pod1", vf), want)
	})
}

func representedInfo(address, representor string) string {
	return fmt.Sprintf(`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": %q, "pf-pci-address": "0000:01:00.0", "representor-device": %q}}`, address, representor)
}

// The third VF has no representor.
func TestVFHasRepresentorOfItsNumber(t *testing.T) {
	needs(t, "igb", "nsim")
	represented(t, 0, representedInfo("0000:01:10.0", "eni1npf0vf0"))
	represented(t, 1, representedInfo("0000:01:10.2", "eni1npf0vf1"))
	represented(t, 2, pciInfo("0000:01:10.4", "0000:01:00.0"))
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
	represented(t, 0, pciInfo("0000:01:10.0", "0000:01:00.0"))
}
