//go:build vm

package vm_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
	plugin "devinfo-cni.io/plugins/devinfo"
)

// No emulated PCI device has a switch. So here the switch of igb's first PF is
// netdevsim's: the plugin runs in this process, with the real /sys, the real VFs
// and the real devlink, but asks devlink for netdevsim/netdevsim1 where it would
// ask for pci/0000:01:00.0.
func withSwitch(t *testing.T, eswitch func(*sysfs.FS) link.Eswitch) *plugin.Plugin {
	t.Helper()
	sys, err := sysfs.Open("/sys")
	must(t, err)
	bootID, err := journal.BootID()
	must(t, err)
	finder := discovery.Finder{Sys: sys, Interfaces: link.NewKernel(sys.Files()), Switches: eswitch(sys)}
	t.Cleanup(func() { nothingLeft(t) })
	return plugin.New(config.DefaultNode(), finder, bootID, new(bytes.Buffer), slog.New(slog.NewTextHandler(t.Output(), nil)))
}

func netdevsim(sys *sysfs.FS) link.Eswitch {
	return link.NewEswitch(sys.Files(), func(string) link.Handle { return link.Handle{Bus: "netdevsim", Device: "netdevsim1"} })
}

// recorded is the device-info file of an attachment with that device, which is
// checked and deleted again.
func recorded(t *testing.T, p *plugin.Plugin, deviceID string) string {
	t.Helper()
	path := infoDir + "/switch-pod1_net1"
	args := &plugin.Args{
		ContainerID: "pod1", Netns: "/run/netns/pod1", IfName: "net1", Path: plugins,
		StdinData: fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "switch", "type": "devinfo", "runtimeConfig": {"CNIDeviceInfoFile": %q, "deviceID": %q}}`, path, deviceID),
	}
	if err := p.Add(args); err != nil {
		t.Fatalf("ADD: %s", errorText(err))
	}
	file := indent(t, read(t, path))
	if err := p.Check(args); err != nil {
		t.Fatalf("CHECK: %s", errorText(err))
	}
	if err := p.Del(args); err != nil {
		t.Fatalf("DEL: %s", errorText(err))
	}
	return file
}

func representedInfo(address, representor string) string {
	return fmt.Sprintf(`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": %q, "pf-pci-address": "0000:01:00.0", "representor-device": %q}}`, address, representor)
}

// Each VF has the representor of its number; the third one has none.
func TestRepresentors(t *testing.T) {
	needs(t, "igb", "nsim")
	pod(t, "pod1")
	p := withSwitch(t, netdevsim)
	for vf, want := range map[string]string{
		"0000:01:10.0": representedInfo("0000:01:10.0", "eni1npf0vf0"),
		"0000:01:10.2": representedInfo("0000:01:10.2", "eni1npf0vf1"),
		"0000:01:10.4": pciInfo("0000:01:10.4", "0000:01:00.0"),
	} {
		same(t, vf, recorded(t, p, vf), indent(t, want))
	}
}

// In legacy mode netdevsim takes its representors away, as a NIC does.
func TestLegacyMode(t *testing.T) {
	needs(t, "igb", "nsim")
	pod(t, "pod1")
	run(t, "devlink", "dev", "eswitch", "set", "netdevsim/netdevsim1", "mode", "legacy")
	t.Cleanup(func() {
		run(t, "devlink", "dev", "eswitch", "set", "netdevsim/netdevsim1", "mode", "switchdev")
		nets, _ := filepath.Glob("/sys/bus/netdevsim/devices/netdevsim1/net/*")
		for _, net := range nets {
			run(t, "ip", "link", "set", filepath.Base(net), "name", "eni1n"+read(t, net+"/phys_port_name"))
		}
	})
	same(t, "VF 0", recorded(t, withSwitch(t, netdevsim), "0000:01:10.0"), indent(t, pciInfo("0000:01:10.0", "0000:01:00.0")))
}

// Where devlink knows neither the mode nor the ports, sysfs tells: phys_switch_id
// and phys_port_name of the PF's interfaces.
func TestRepresentorsWithoutDevlink(t *testing.T) {
	needs(t, "igb", "nsim")
	pod(t, "pod1")
	p := withSwitch(t, func(sys *sysfs.FS) link.Eswitch {
		return link.Eswitch{
			Sys:   withPorts{sys.Files()},
			Mode:  func(string) (string, error) { return "", syscall.ENODEV },
			Ports: func(string) ([]*netlink.DevlinkPort, error) { return nil, syscall.ENODEV },
		}
	})
	same(t, "VF 1", recorded(t, p, "0000:01:10.2"), indent(t, representedInfo("0000:01:10.2", "eni1npf0vf1")))
}

// withPorts is /sys with netdevsim's interfaces as those of igb's PF.
type withPorts struct{ fs.FS }

func (f withPorts) in(name string) string {
	return strings.Replace(name, "bus/pci/devices/0000:01:00.0/net", "bus/netdevsim/devices/netdevsim1/net", 1)
}

func (f withPorts) Open(name string) (fs.File, error)          { return f.FS.Open(f.in(name)) }
func (f withPorts) ReadLink(name string) (string, error)       { return fs.ReadLink(f.FS, f.in(name)) }
func (f withPorts) Lstat(name string) (fs.FileInfo, error)     { return fs.Lstat(f.FS, f.in(name)) }
func (f withPorts) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(f.FS, f.in(name)) }
func (f withPorts) ReadFile(name string) ([]byte, error)       { return fs.ReadFile(f.FS, f.in(name)) }
